package native

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api/live"
	"berth/proto"
	"berth/session"

	"github.com/gorilla/websocket"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A wire is a client's end of a live websocket. It holds each event against the document.
type wire struct {
	t *testing.T
	*websocket.Conn
	schema *jsonschema.Schema // nil: none, where there is much to read
}

func (s *site) dial(t *testing.T, path string, header ...string) (*wire, *http.Response) {
	t.Helper()
	h := http.Header{"X-Api-Key": {testKey}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	conn, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.URL, "http")+path, h)
	if err != nil {
		if res == nil {
			t.Fatal(err)
		}
		return nil, res
	}
	sch, err := readDocument(t, s.URL).compiler.Compile(documentURL + "#/components/schemas/Event")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{t, conn, sch}, res
}

// live connects to a container and takes the ready event.
func (s *site) live(t *testing.T, at string) *wire {
	t.Helper()
	w, res := s.dial(t, at+"/live")
	if w == nil {
		t.Fatalf("status %d", res.StatusCode)
	}
	if res.Header.Get("Request-Id") == "" {
		t.Error("the answer has no Request-Id")
	}
	if ev := w.next(); ev.Type != proto.EventReady || "/v1/containers/"+ev.Container.ID != at {
		t.Fatalf("%+v", ev)
	}
	return w
}

func (w *wire) send(m any) {
	w.t.Helper()
	if err := w.WriteJSON(m); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) next() (ev proto.Event) {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(time.Minute)) // a test that waits for what never comes fails
	_, data, err := w.ReadMessage()
	if err != nil {
		w.t.Fatal(err)
	}
	if w.schema != nil {
		w.judge(data)
	}
	if err := json.Unmarshal(data, &ev); err != nil {
		w.t.Fatal(err)
	}
	return ev
}

// judge holds an event against the document.
func (w *wire) judge(data []byte) {
	w.t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	if err == nil {
		err = w.schema.Validate(v)
	}
	if err != nil {
		w.t.Fatalf("not as documented: %v in %.300s", err, data)
	}
}

// until reads events until one of this type comes and returns all, that one last.
func (w *wire) until(typ proto.EventType) (list []sse) {
	w.t.Helper()
	for {
		ev := w.next()
		list = append(list, sse{Event: ev})
		if ev.Type == typ {
			return list
		}
	}
}

func (w *wire) start(ref string, cmd proto.Cmd) proto.Exec {
	w.t.Helper()
	w.send(live.Message{Type: live.TypeExec, Ref: ref, Cmd: &cmd})
	ev := w.next()
	if ev.Type != proto.EventStart || ev.Ref != ref || ev.Exec.ID != ev.ExecID {
		w.t.Fatalf("%+v", ev)
	}
	return *ev.Exec
}

func last(list []sse) proto.Event { return list[len(list)-1].Event }

func TestLiveExec(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	w := s.live(t, at)
	x := w.start("r1", proto.Cmd{Command: "echo one; echo two >&2; read l; printf \"$l\"; exit 5", OpenStdin: true})
	w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: "thr"})
	w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, DataBase64: []byte("ee\n"), Close: true})
	list := w.until(proto.EventExit)
	if text, _ := output(t, list, "stdout", 0); text != "one\nthree" {
		t.Errorf("%q", text)
	}
	if text, _ := output(t, list, "stderr", 0); text != "two\n" {
		t.Errorf("%q", text)
	}
	same(t, *last(list).Result, must[proto.ExecResult](t, s, "GET", at+"/execs/"+x.ID+"/result", nil))
	if last(list).Result.Exec.End.ReturnCode != 5 || last(list).Ref != "" {
		t.Errorf("%+v", last(list))
	}
}

// A message that is sent again with its idempotency key finds the command that its connection follows, and nothing of
// that comes twice.
func TestLiveExecIsFollowedOnce(t *testing.T) {
	s := newSite(t)
	w := s.live(t, s.container(t))
	cmd := proto.Cmd{Command: "read l; echo $l", OpenStdin: true, IdempotencyKey: "once"}
	x := w.start("r1", cmd)
	w.send(live.Message{Type: live.TypeExec, Ref: "r2", Cmd: &cmd})
	if ev := w.next(); ev.Type != proto.EventError || ev.Ref != "r2" || ev.Error.Code != proto.Conflict ||
		ev.Error.Item != x.ID {
		t.Fatalf("%+v", ev)
	}
	w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: "a line\n", Close: true})
	list := w.until(proto.EventExit)
	if text, _ := output(t, list, "stdout", 0); text != "a line\n" {
		t.Errorf("%q", text)
	}
	w.send(live.Message{Type: live.TypeExec, Ref: "r3", Cmd: &cmd})
	if ev := w.next(); ev.Type != proto.EventStart || ev.Ref != "r3" || ev.Exec.ID != x.ID {
		t.Errorf("once it has ended: %+v", ev)
	}
}

// Output that was asked for as bytes is the same output, and all else stays JSON.
func TestLiveBinary(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	w := s.live(t, at)
	command := `printf 'a\377\303'; head -c 300000 /dev/zero >&2; printf '\244'; exit 5`
	w.send(live.Message{Type: live.TypeExec, Ref: "r", Cmd: &proto.Cmd{Command: command}, Binary: true})
	id, end := "", proto.Event{}
	for _, again := range []bool{false, true} {
		if again {
			w.send(live.Message{Type: live.TypeAttach, Ref: "r", ExecID: id, StdoutOffset: 1, Binary: true})
		}
		got := [3][]byte{}
		if again {
			got[1] = []byte("a") // which the client has
		}
		for end = (proto.Event{}); end.Type != proto.EventExit; {
			kind, data, err := w.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			if kind == websocket.TextMessage {
				w.judge(data)
				if err := json.Unmarshal(data, &end); err != nil || end.Type != proto.EventStart &&
					end.Type != proto.EventExit || end.Type == proto.EventStart && end.Ref != "r" {
					t.Fatalf("%.200s %v", data, err)
				}
				id = end.ExecID
				continue
			}
			ev, err := proto.ParseOutput(data)
			i := 1
			if ev.Type == proto.EventStderr {
				i = 2
			}
			if err != nil || ev.ExecID != id || ev.Offset != int64(len(got[i])) {
				t.Fatalf("%v %s %d after %d", err, ev.ExecID, ev.Offset, len(got[i]))
			}
			got[i] = append(got[i], ev.DataBase64...)
		}
		if string(got[1]) != "a\xff\xc3\xa4" || len(got[2]) != 300_000 || end.Result.Exec.End.ReturnCode != 5 {
			t.Errorf("again %v: %q, %d bytes of stderr, %+v", again, got[1], len(got[2]), end.Result.Exec.End)
		}
	}
	w.send(live.Message{Type: live.TypeStdin, Ref: "x", ExecID: id, Data: "x", Binary: true})
	if ev := w.next(); ev.Type != proto.EventError || ev.Error.Item != "binary" {
		t.Errorf("%+v", ev)
	}
}

func TestLiveMultiplexes(t *testing.T) {
	s := newSite(t)
	w := s.live(t, s.container(t))
	a := w.start("a", proto.Cmd{Command: "cat", OpenStdin: true})
	b := w.start("b", proto.Cmd{Command: "cat >&2", OpenStdin: true})
	say := func(x proto.Exec, text string, stream proto.EventType) {
		t.Helper()
		w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: text})
		if ev := w.next(); ev.ExecID != x.ID || ev.Type != stream || ev.Data != text {
			t.Fatalf("%+v", ev)
		}
	}
	for i := range 3 {
		say(a, fmt.Sprint("a", i), proto.EventStdout)
		say(b, fmt.Sprint("b", i), proto.EventStderr)
	}
	w.send(live.Message{Type: live.TypeSignal, ExecID: a.ID, Signal: "SIGINT"})
	if ev := w.next(); ev.Type != proto.EventExit || ev.ExecID != a.ID || ev.Result.Exec.End.Signal != "SIGINT" {
		t.Fatalf("%+v", ev)
	}
	say(b, "still", proto.EventStderr)
	w.send(live.Message{Type: live.TypeStdin, ExecID: b.ID, Close: true})
	if ev := w.next(); ev.Type != proto.EventExit || ev.ExecID != b.ID ||
		ev.Result.Result.Result.Stderr != "b0b1b2still" {
		t.Fatalf("%+v", ev)
	}
}

func TestLiveTerminal(t *testing.T) {
	s := newSite(t)
	w := s.live(t, s.container(t))
	x := w.start(
		"", proto.Cmd{Command: `stty size; trap 'stty size; exit' WINCH; echo ready; while :; do read -t 1 x; done`,
			TTY: &proto.WindowSize{Rows: 24, Cols: 80}})
	var seen string
	for !strings.Contains(seen, "ready") {
		seen += w.next().Data
	}
	if !strings.Contains(seen, "24 80") {
		t.Errorf("%q", seen)
	}
	for n := range 20 {
		w.send(live.Message{Type: live.TypeResize, ExecID: x.ID, Rows: uint16(30 + n), Cols: 100})
	}
	text, _ := output(t, w.until(proto.EventExit), "stdout", int64(len(seen)))
	if !strings.Contains(text, " 100") {
		t.Errorf("%q", text)
	}
}

// TestTerminalSurvivesItsClient checks that a terminal goes on when its client detaches, and when its connection
// breaks, and that the next client sees the end of its output, types into it and resizes it.
func TestTerminalSurvivesItsClient(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	w := s.live(t, at)
	x := w.start("", proto.Cmd{Command: `echo first; while read -r x; do echo "got $x" $(stty size); done`,
		Detach: true, TTY: &proto.WindowSize{Rows: 24, Cols: 80}})
	if !x.Terminal || x.PID == 0 {
		t.Errorf("%+v", x)
	}
	read := func(w *wire, want string) {
		t.Helper()
		for seen := ""; !strings.Contains(seen, want); seen += w.next().Data {
		}
	}
	read(w, "first")
	w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: "one\n"})
	read(w, "got one 24 80")
	w.send(live.Message{Type: live.TypeDetach, ExecID: x.ID})
	if ev := last(w.until(proto.EventDetached)); ev.ExecID != x.ID {
		t.Errorf("%+v", ev)
	}
	w.send(live.Message{Type: live.TypeDetach, ExecID: x.ID})
	if ev := w.next(); ev.Error == nil || ev.Error.Code != proto.Conflict {
		t.Errorf("a second detach: %+v", ev)
	}
	// the same connection attaches again, by the process ID, and breaks
	w.send(live.Message{Type: live.TypeAttach, ExecID: strconv.Itoa(x.PID), TailBytes: 1 << 20})
	read(w, "got one 24 80")
	w.Close()

	w = s.live(t, at)
	w.send(live.Message{Type: live.TypeAttach, ExecID: x.ID, TailBytes: 7})
	w.until(proto.EventStart)
	if ev := w.next(); ev.Data != "24 80\r\n" {
		t.Errorf("the tail is %+v", ev)
	}
	w.send(live.Message{Type: live.TypeResize, ExecID: x.ID, Rows: 30, Cols: 100})
	w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: "two\n"})
	read(w, "got two ")
	w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: "\x04"})
	if ev := last(w.until(proto.EventExit)); ev.Result.Exec.End.ReturnCode != 0 {
		t.Errorf("%+v", ev.Result.Exec.End)
	}

	// one that belongs to its connection cannot be left
	y := w.start("", proto.Cmd{Command: "cat", OpenStdin: true})
	w.send(live.Message{Type: live.TypeDetach, ExecID: y.ID})
	if ev := w.next(); ev.Error == nil || ev.Error.Code != proto.Conflict {
		t.Errorf("%+v", ev)
	}
}

// The last of many resizes is the one that stays.
func TestResizesKeepTheirOrder(t *testing.T) {
	s := newSite(t)
	w := s.live(t, s.container(t))
	x := w.start("", proto.Cmd{Command: `cat; stty size`, TTY: &proto.WindowSize{Rows: 24, Cols: 80}})
	for n := range 200 {
		w.send(live.Message{Type: live.TypeResize, ExecID: x.ID, Rows: uint16(n + 1), Cols: 77})
	}
	// Answers come in order of their lane, so an error behind the resizes says that they are done.
	w.send(live.Message{Type: live.TypeSignal, ExecID: x.ID, Signal: "SIGNOTHING"})
	if ev := w.next(); ev.Type != proto.EventError {
		t.Fatalf("%+v", ev)
	}
	w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: "\x04"})
	if text, _ := output(t, w.until(proto.EventExit), "stdout", 0); !strings.Contains(text, "200 77") {
		t.Errorf("%q", text)
	}
}

// What is wrong is answered with its ref, and the connection goes on.
func TestLiveRefusals(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	w := s.live(t, at)
	x := s.run(t, at, "true").Exec.ID
	for _, tt := range []struct {
		text string
		code proto.Code
		item string
	}{
		{`{"ref":"r","type":"exec"`, proto.InvalidArgument, ""},
		{`not json`, proto.InvalidArgument, ""},
		{`[]`, proto.InvalidArgument, ""},
		{``, proto.InvalidArgument, ""},
		{`{"ref":"r","type":"dance"}`, proto.InvalidArgument, "type"},
		{`{"ref":"r"}`, proto.InvalidArgument, "type"},
		{`{"ref":"r","type":"exec"}`, proto.InvalidArgument, "cmd"},
		{`{"ref":"r","type":"exec","cmd":{}}`, proto.InvalidArgument, "command"},
		{`{"ref":"r","type":"exec","cmd":{"comand":"x"}}`, proto.InvalidArgument, "cmd.comand"},
		{`{"ref":"r","type":"exec","cmd":{"command":"x"},"signal":"SIGTERM"}`, proto.InvalidArgument, "signal"},
		{`{"ref":"r","type":"attach","exec_id":"exec_none"}`, proto.NotFound, "exec_none"},
		{`{"ref":"r","type":"attach","exec_id":"` + x + `","stdout_offset":-1}`, proto.InvalidArgument,
			"stdout_offset"},
		{`{"ref":"r","type":"stdin","exec_id":"exec_none","data":"x"}`, proto.NotFound, "exec_none"},
		{`{"ref":"r","type":"stdin","exec_id":"` + x + `","data":"x"}`, proto.Conflict, x},
		{`{"ref":"r","type":"stdin","exec_id":"` + x + `","data":"x","data_base64":"eA=="}`, proto.InvalidArgument,
			"data"},
		{`{"ref":"r","type":"stdin","exec_id":"` + x + `","data_base64":"!"}`, proto.InvalidArgument, "data_base64"},
		{`{"ref":"r","type":"signal","exec_id":"` + x + `","signal":"SIGTERM"}`, proto.Conflict, x},
		{`{"ref":"r","type":"signal","exec_id":"` + x + `"}`, proto.InvalidArgument, ""},
		{`{"ref":"r","type":"resize","exec_id":"` + x + `","rows":1,"cols":1}`, proto.Conflict, x},
		{`{"ref":"r","type":"resize","exec_id":"` + x + `","rows":1}`, proto.InvalidArgument, ""},
		{`{"ref":"r","type":"watch","exec_id":"` + x + `"}`, proto.InvalidArgument, "exec_id"},
		{`{"ref":"` + strings.Repeat("r", 128+1) + `","type":"watch"}`, proto.InvalidArgument, "ref"},
	} {
		if err := w.WriteMessage(websocket.TextMessage, []byte(tt.text)); err != nil {
			t.Fatal(err)
		}
		ev := w.next()
		if ev.Type != proto.EventError || ev.Error.Code != tt.code || tt.item != "" && ev.Error.Item != tt.item {
			t.Errorf("%s: %+v %+v", tt.text, ev, ev.Error)
		}
		if wellFormed := json.Valid([]byte(tt.text)) && strings.HasPrefix(tt.text, `{"ref":"r"`); wellFormed &&
			ev.Ref != "r" {
			t.Errorf("%s: ref %q", tt.text, ev.Ref)
		}
	}
	w.start("after", proto.Cmd{Command: "true"})
	w.until(proto.EventExit)
}

func TestLiveLateJoiner(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.launch(t, at, proto.Cmd{Command: "echo 0123456789; read l; echo $l", OpenStdin: true})
	a, b := s.live(t, at), s.live(t, at)
	for offset, w := range map[int64]*wire{0: a, 4: b} {
		w.send(live.Message{Type: live.TypeAttach, Ref: "j", ExecID: x.ID, StdoutOffset: offset})
		if ev := w.next(); ev.Type != proto.EventStart || ev.Ref != "j" {
			t.Fatalf("%+v", ev)
		}
		for got := ""; !strings.HasSuffix(got, "9\n"); {
			ev := w.next()
			if ev.Offset != offset+int64(len(got)) {
				t.Fatalf("%+v", ev)
			}
			got += ev.Data
		}
	}
	a.send(live.Message{Type: live.TypeAttach, Ref: "again", ExecID: x.ID})
	if ev := a.next(); ev.Type != proto.EventError || ev.Ref != "again" || ev.Error.Code != proto.Conflict {
		t.Errorf("%+v", ev)
	}
	b.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: "bye\n"})
	ra, rb := last(a.until(proto.EventExit)), last(b.until(proto.EventExit))
	same(t, *ra.Result, *rb.Result)
	late := s.live(t, at)
	for range 2 { // a command that was followed to its end can be followed again
		late.send(live.Message{Type: live.TypeAttach, ExecID: x.ID})
		list := late.until(proto.EventExit)
		if text, _ := output(t, list, "stdout", 0); text != "0123456789\nbye\n" {
			t.Errorf("%q", text)
		}
		same(t, *last(list).Result, *ra.Result)
	}
}

// A watcher sees what others run, from its beginning, and its own commands once.
func TestLiveWatch(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	s.run(t, at, "echo before")
	running := s.launch(t, at, proto.Cmd{Command: "echo runs; read l", OpenStdin: true})
	w, _ := s.dial(t, at+"/live?watch=true")
	w.next()
	if ev := w.next(); ev.Type != proto.EventStart || ev.ExecID != running.ID {
		t.Fatalf("%+v", ev)
	}
	if ev := w.next(); ev.Data != "runs\n" {
		t.Fatalf("%+v", ev)
	}
	for i := range 10 {
		w.send(live.Message{Type: live.TypeExec, Ref: "own", Cmd: &proto.Cmd{Command: fmt.Sprint("echo own", i)}})
		list := w.until(proto.EventExit)
		if text, _ := output(t, list, "stdout", 0); text != fmt.Sprintf("own%d\n", i) || list[0].Ref != "own" ||
			len(list) != 3 {
			t.Fatalf("%+v", list)
		}
	}
	other := s.run(t, at, "echo other")
	list := w.until(proto.EventExit)
	if text, _ := output(t, list, "stdout", 0); text != "other\n" || list[0].Ref != "" ||
		last(list).ExecID != other.Exec.ID {
		t.Errorf("%+v", list)
	}
	w.send(live.Message{Type: live.TypeStdin, ExecID: running.ID, Data: "\n"})
	if ev := last(w.until(proto.EventExit)); ev.ExecID != running.ID {
		t.Errorf("%+v", ev)
	}
}

func TestSocketGone(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	w := s.live(t, at)
	foreground := w.start("", proto.Cmd{Command: "sleep 1000"})
	detached := w.start("", proto.Cmd{Command: "sleep 1000", Detach: true})
	background := w.start("", proto.Cmd{Command: "sleep 1000", Background: true})
	other := s.launch(t, at, proto.Cmd{Command: "sleep 1000"})
	w.send(live.Message{Type: live.TypeAttach, ExecID: other.ID})
	w.next()
	w.Close()
	s.done.wait()
	if got := s.ended(t, at, foreground.ID); got.Exec.End.Reason != proto.EndCanceled {
		t.Errorf("%+v", got.Exec.End)
	}
	for _, x := range []proto.Exec{detached, background, other} {
		if got := must[proto.Exec](t, s, "GET", at+"/execs/"+x.ID, nil); got.State != proto.ExecRunning {
			t.Errorf("%+v", got.End)
		}
		must[proto.Exec](t, s, "POST", at+"/execs/"+x.ID+"/signal", signalRequest{"KILL"})
	}
}

// Whatever a socket was in the middle of, nothing of it is left when it has ended.
func TestSocketsLeaveNoGoroutines(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.launch(t, at, proto.Cmd{Command: "cat /dev/zero", MaxOutputBytes: 1 << 20})
	use := func() {
		w, _ := s.dial(t, at+"/live?watch=true")
		w.send(live.Message{Type: live.TypeExec, Cmd: &proto.Cmd{Command: "cat /dev/zero", MaxOutputBytes: 1 << 20,
			OpenStdin: true}})
		w.send(live.Message{Type: live.TypeStdin, ExecID: x.ID, Data: "x"})
		w.send(live.Message{Type: live.TypeAttach, ExecID: x.ID})
		w.until(proto.EventStdout)
		w.Close()
		s.done.wait()
		s.client.CloseIdleConnections()
	}
	use()
	idle := func() int { // until what ends by itself has ended
		n := runtime.NumGoroutine()
		for range 100 {
			runtime.GC()
			n = min(n, runtime.NumGoroutine())
			must[proto.Container](t, s, "GET", at, nil)
			s.client.CloseIdleConnections()
		}
		return n
	}
	for s.Sessions.Counts().RunningExecs > 1 { // its own command is being killed
		must[proto.Container](t, s, "GET", at, nil)
	}
	before := idle()
	for range 20 {
		use()
	}
	for s.Sessions.Counts().RunningExecs > 1 {
		must[proto.Container](t, s, "GET", at, nil)
	}
	if after := idle(); after > before+3 {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, then %d\n%s", before, after, buf[:runtime.Stack(buf, true)])
	}
	must[proto.Exec](t, s, "POST", at+"/execs/"+x.ID+"/signal", signalRequest{"KILL"})
}

// Fifty readers that hardly read neither hold up a command that writes 200 MB nor cost memory.
func TestSlowReaders(t *testing.T) {
	s := siteWith(t, session.Config{}, func(c *Config) { c.Socket.WriteTimeout = time.Hour }) // slow, and not gone
	at := s.container(t)
	const size = 200 << 20
	x := s.launch(t, at, proto.Cmd{Command: fmt.Sprintf("read l; head -c %d /dev/zero | tr '\\0' z", size),
		OpenStdin: true, MaxOutputBytes: 1 << 20})
	var wires []*wire
	for range 20 {
		w := s.live(t, at)
		w.send(live.Message{Type: live.TypeAttach, ExecID: x.ID})
		w.next()
		w.schema = nil
		wires = append(wires, w)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must[written](t, s, "POST", at+"/execs/"+x.ID+"/stdin?close=true", "\n")
	res := s.ended(t, at, x.ID) // while nobody has read a byte
	if res.Exec.StdoutBytes != size || res.Exec.End.ReturnCode != 0 {
		t.Errorf("%+v", res.Exec)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	var wg sync.WaitGroup
	for _, w := range wires {
		wg.Go(func() {
			var at int64
			for {
				ev := w.next()
				switch ev.Type {
				case proto.EventStdout:
					if ev.Offset != at {
						t.Errorf("%d bytes at %d, expected %d", len(ev.Data), ev.Offset, at)
					}
					at += int64(len(ev.Data))
				case proto.EventGap:
					at = ev.Until
				case proto.EventExit:
					if at != size || ev.Result.Exec.StdoutBytes != size {
						t.Errorf("it ended at %d", at)
					}
					return
				}
			}
		})
	}
	wg.Wait()
}

// A client that takes nothing at all is cut off, and its command with it.
func TestDeadPeer(t *testing.T) {
	s := siteWith(t, session.Config{}, func(c *Config) { c.Socket.WriteTimeout = 200 * time.Millisecond })
	at := s.container(t)
	w := s.live(t, at)
	w.send(live.Message{Type: live.TypeExec, Cmd: &proto.Cmd{Command: "yes", MaxOutputBytes: 1 << 20}})
	s.done.wait() // it never reads
	list := must[page[proto.Exec]](t, s, "GET", at+"/execs", nil).Data
	if got := s.ended(t, at, list[0].ID); got.Exec.End.Reason != proto.EndCanceled {
		t.Errorf("%+v", got.Exec.End)
	}
}

// Input that a command does not read is bounded, and never passed on with a hole in it.
func TestLiveStdinIsBounded(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	s.run(t, at, "mkfifo /tmp/go")
	w := s.live(t, at)
	x := w.start("", proto.Cmd{Command: "read l < /tmp/go; cat", OpenStdin: true, MaxOutputBytes: 8 << 20})
	const size, blocks = 64 << 10, 40
	var sent strings.Builder
	for i := range blocks {
		block := strings.Repeat(string(rune('A'+i)), size)
		sent.WriteString(block)
		w.send(live.Message{Type: live.TypeStdin, Ref: fmt.Sprint(i), ExecID: x.ID, Data: block})
	}
	w.send(live.Message{Type: live.TypeStdin, Ref: fmt.Sprint(blocks), ExecID: x.ID, Close: true})
	ev := w.next()
	var first int
	if _, err := fmt.Sscan(ev.Ref, &first); err != nil || ev.Type != proto.EventError ||
		ev.Error.Code != proto.TooMany || first*size < live.MaxWaiting {
		t.Fatalf("%+v %+v", ev, ev.Error)
	}
	for i := first + 1; i <= blocks; i++ {
		if ev := w.next(); ev.Type != proto.EventError || ev.Ref != fmt.Sprint(i) {
			t.Fatalf("what came behind the first refused one was taken: %+v", ev)
		}
	}
	s.run(t, at, "echo > /tmp/go")
	var got strings.Builder
	for got.Len() < first*size {
		got.WriteString(w.next().Data)
	}
	if got.String() != sent.String()[:first*size] {
		t.Error("what was taken did not arrive as it was sent")
	}
	w.send(live.Message{Type: live.TypeStdin, Ref: "late", ExecID: x.ID, Data: "z"})
	if ev := w.next(); ev.Type != proto.EventError || ev.Ref != "late" {
		t.Errorf("%+v", ev)
	}
}

func TestOrigins(t *testing.T) {
	s := siteWith(t, session.Config{}, func(c *Config) { c.Origins = []string{"https://app.example.org"} })
	at := s.container(t)
	for origin, want := range map[string]int{"https://app.example.org": 101, s.URL: 101,
		"https://evil.example.org": 403, "null": 403} {
		if _, res := s.dial(t, at+"/live", "Origin", origin); res.StatusCode != want {
			t.Errorf("%s: %d", origin, res.StatusCode)
		}
	}
	key := "berth.v1, berth.key." + base64.RawURLEncoding.EncodeToString([]byte(testKey))
	h := http.Header{"Sec-WebSocket-Protocol": {key}}
	conn, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.URL, "http")+at+"/live", h)
	if err != nil {
		t.Fatalf("%v %v", err, res)
	}
	conn.Close()
}

func TestTooLargeMessage(t *testing.T) {
	s := newSite(t)
	w := s.live(t, s.container(t))
	w.send(live.Message{Type: live.TypeExec, Cmd: &proto.Cmd{Command: strings.Repeat("#", maxJSON)}})
	if _, _, err := w.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
		t.Errorf("%v", err)
	}
	s.done.wait()
}
