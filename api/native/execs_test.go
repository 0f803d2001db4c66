package native

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

func TestExecAnswers(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	res := s.run(t, at, "echo out; echo err >&2; exit 3")
	if r := res.Result.Result; r == nil || r.Stdout != "out\n" || r.Stderr != "err\n" || r.ReturnCode != 3 ||
		r.Content == nil {
		t.Fatalf("%+v", res)
	}
	if got := must[proto.ExecResult](t, s, "GET", at+"/execs/"+res.Exec.ID+"/result",
		nil); *got.Exec.End != *res.Exec.End || got.Result.Result.Stdout != "out\n" {
		t.Errorf("%+v", got)
	}
	if got := must[proto.Exec](t, s, "GET", at+"/execs/"+res.Exec.ID, nil); got.State != proto.ExecEnded ||
		got.StdoutBytes != 4 {
		t.Errorf("%+v", got)
	}
	if got := must[proto.ExecResult](t, s, "POST", at+"/exec",
		`{"argv":["no-such-program"]}`); got.Exec.End.Reason != proto.EndNotStarted || got.Exec.End.ReturnCode != 127 {
		t.Errorf("%+v", got)
	}
	late := must[proto.ExecResult](t, s, "POST", at+"/exec", `{"command":"echo a; sleep 100","timeout_seconds":0.2}`)
	if late.Result.Error == nil || late.Result.Error.ErrorCode != proto.BlockTimeExceeded ||
		late.Partial.Stdout != "a\n" {
		t.Errorf("%+v", late)
	}
	if list := must[page[proto.Exec]](t, s, "GET", at+"/execs", nil).Data; len(list) != 3 || list[0].ID != res.Exec.ID {
		t.Errorf("%+v", list)
	}
}

func TestBackgroundExec(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	resp, body := s.do(t, "POST", at+"/exec",
		`{"command":"read line; echo got $line; sleep 100","background":true,"open_stdin":true}`)
	var x proto.Exec
	if err := json.Unmarshal([]byte(body), &x); err != nil || resp.StatusCode != 202 || x.State != proto.ExecRunning {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	ex := at + "/execs/" + x.ID
	if resp, _ := s.do(t, "GET", ex+"/result", nil); resp.StatusCode != 202 {
		t.Errorf("the result of what runs: %d", resp.StatusCode)
	}
	if resp, body := s.do(t, "GET", ex+"/logs", nil); resp.StatusCode != 200 || body != "" {
		t.Errorf("logs of what has written nothing yet: %d %q", resp.StatusCode, body)
	}
	if n := must[written](t, s, "POST", ex+"/stdin", "hello\n"); n.Bytes != 6 {
		t.Errorf("%+v", n)
	}
	logs, err := s.client.Do(s.request(t, t.Context(), "GET", ex+"/logs?follow=true&stream=stdout", nil))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if _, err := io.ReadFull(logs.Body, buf); err != nil || string(buf) != "got hello\n" {
		t.Fatalf("%q %v", buf, err)
	}
	if res, body := s.do(t, "GET", ex+"/logs", nil); res.StatusCode != 200 || body != "got hello\n" {
		t.Errorf("logs of what runs: %d %q", res.StatusCode, body)
	}
	must[proto.Exec](t, s, "POST", ex+"/signal", signalRequest{"TERM"})
	if rest, err := io.ReadAll(logs.Body); err != nil || len(rest) != 0 {
		t.Errorf("the rest of the log: %q %v", rest, err)
	}
	logs.Body.Close()
	res := s.ended(t, at, x.ID)
	if res.Exec.End.Reason != proto.EndSignal || res.Exec.End.ReturnCode != 143 {
		t.Errorf("%+v", res.Exec.End)
	}
}

// Standard input of any size goes through, and its end is what the command sees.
func TestLargeStdin(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.launch(t, at, proto.Cmd{Command: "wc -c", OpenStdin: true})
	const size = 20 << 20
	n := must[written](t, s, "POST", at+"/execs/"+x.ID+"/stdin?close=true", io.LimitReader(zeros{}, size))
	if res := s.ended(t, at, x.ID); n.Bytes != size || strings.TrimSpace(res.Result.Result.Stdout) != fmt.Sprint(size) {
		t.Errorf("%d %+v", n.Bytes, res.Result.Result)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A client that leaves while it writes to a command that does not read leaves no handler behind.
func TestStdinOfWhatDoesNotRead(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.launch(t, at, proto.Cmd{Command: "sleep 1000", OpenStdin: true})
	ctx, cancel := context.WithCancel(t.Context())
	const size = 300 << 10 // more than a pipe holds
	sent := &countdown{n: size, at: size, then: cancel}
	if res, err := s.client.Do(s.request(t, ctx, "POST", at+"/execs/"+x.ID+"/stdin", sent)); err == nil {
		res.Body.Close()
		t.Fatalf("%d", res.StatusCode)
	}
	s.done.wait()
	if got := must[proto.Exec](t, s, "GET", at+"/execs/"+x.ID, nil); got.State != proto.ExecRunning {
		t.Errorf("%+v", got)
	}
	must[proto.Exec](t, s, "POST", at+"/execs/"+x.ID+"/signal", signalRequest{"KILL"})
	s.ended(t, at, x.ID)
}

// A countdown gives n bytes and calls then when the at-th has been taken.
type countdown struct {
	n, at, done int
	then        func()
}

func (c *countdown) Read(p []byte) (int, error) {
	if c.done >= c.at {
		c.then()
	}
	if c.done >= c.n {
		return 0, io.EOF
	}
	n := min(len(p), c.n-c.done)
	c.done += n
	return n, nil
}

func TestLogs(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	res := must[proto.ExecResult](t, s, "POST", at+"/exec",
		proto.Cmd{Command: `printf 'a\xff\xc3'; printf 'é0123456789' >&2; printf '\xa9!'`})
	logs := at + "/execs/" + res.Exec.ID + "/logs"
	for query, want := range map[string]string{
		"?stream=stdout": "a\xff\xc3\xa9!", "?stream=stdout&follow=true": "a\xff\xc3\xa9!",
		"?stream=stdout&offset=1": "\xff\xc3\xa9!",
		"?stream=stderr":          "é0123456789", "?stream=stderr&offset=2": "0123456789",
		"?stream=stderr&offset=12": "",
		"?stream=stderr&offset=1":  "\xa90123456789",
	} {
		res, body := s.do(t, "GET", logs+query, nil)
		if res.StatusCode != 200 || body != want || res.Header.Get("Content-Type") != octets ||
			res.Header.Get(logStart) != "" {
			t.Errorf("%s: %d %q %v", query, res.StatusCode, body, res.Header)
		}
	}
	if _, body := s.do(t, "GET", logs, nil); len(body) != len("a\xff\xc3\xa9!")+len("é0123456789") {
		t.Errorf("both: %q", body)
	}
}

// Output that is no longer kept is told: in the header where the log would begin with it, in the text where it is in
// the middle.
func TestLogsOfMuchOutput(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	res := must[proto.ExecResult](t, s, "POST", at+"/exec", proto.Cmd{Command: "head -c 3000000 /dev/zero | tr '\\0' x",
		MaxOutputBytes: 1 << 20})
	logs := at + "/execs/" + res.Exec.ID + "/logs?stream=stdout"
	got, body := s.do(t, "GET", logs, nil)
	if got.Header.Get(logStart) != "" || !strings.Contains(body, "\n[output truncated: ") || len(body) > 2<<20 {
		t.Errorf("%d bytes, %v", len(body), got.Header)
	}
	got, body = s.do(t, "GET", logs+"&offset=1500000", nil)
	var start int
	if _, err := fmt.Sscan(got.Header.Get(logStart), &start); err != nil || start <= 1500000 ||
		len(body) != 3000000-start || strings.Trim(body, "x") != "" {
		t.Errorf("start %q, %d bytes", got.Header.Get(logStart), len(body))
	}
}

func TestClientGone(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	box, err := s.Sessions.Get(sessiontest.Owner, strings.TrimPrefix(at, "/v1/containers/"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		cmd    proto.Cmd
		accept string
		want   proto.EndReason
	}{
		"json":           {proto.Cmd{}, "", proto.EndCanceled},
		"events":         {proto.Cmd{}, eventType, proto.EndCanceled},
		"detach":         {proto.Cmd{Detach: true}, "", proto.EndExit},
		"detached event": {proto.Cmd{Detach: true}, eventType, proto.EndExit},
		"background":     {proto.Cmd{Background: true}, eventType, proto.EndExit},
	} {
		t.Run(name, func(t *testing.T) {
			// The command says that it runs by a file, and ends when it reads another one.
			s.run(t, at, "rm -f /tmp/go /tmp/up; mkfifo /tmp/up /tmp/go")
			tt.cmd.Command = "echo up > /tmp/up; cat /tmp/go"
			seen := box.Begun()
			ctx, cancel := context.WithCancel(t.Context())
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				res, err := s.client.Do(s.request(t, ctx, "POST", at+"/exec", tt.cmd, "Accept", tt.accept))
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			}()
			s.run(t, at, "cat /tmp/up")
			var x proto.Exec
			for x.ID == "" { // it runs, and may not be listed yet
				var fresh []*session.Exec
				if fresh, seen, err = box.NextExecs(t.Context(), seen); err != nil {
					t.Fatal(err)
				}
				for _, e := range fresh {
					if info := e.Info(); info.Command == tt.cmd.Command {
						x = info
					}
				}
			}
			cancel()
			<-answered
			s.done.wait()
			x = must[proto.Exec](t, s, "GET", at+"/execs/"+x.ID, nil)
			if tt.want == proto.EndExit {
				if x.State != proto.ExecRunning {
					t.Fatalf("it ended: %+v", x.End)
				}
				s.run(t, at, "echo > /tmp/go")
			}
			if got := s.ended(t, at, x.ID); got.Exec.End.Reason != tt.want {
				t.Errorf("%+v", got.Exec.End)
			}
		})
	}
}

func TestRunOnce(t *testing.T) {
	s := newSite(t)
	count := func() int { return len(must[page[proto.Container]](t, s, "GET", "/v1/containers", nil).Data) }
	res := must[proto.ExecResult](t, s, "POST", "/v1/exec",
		`{"create":{"labels":{"a":"b"}},"command":"echo $N","env":{"N":"7"}}`)
	if res.Result.Result.Stdout != "7\n" || count() != 1 {
		t.Errorf("%+v, %d containers", res, count())
	}
	res = must[proto.ExecResult](t, s, "POST", "/v1/exec", `{"ephemeral":true,"command":"echo gone"}`)
	if res.Result.Result.Stdout != "gone\n" || count() != 1 {
		t.Errorf("%+v, %d containers", res, count())
	}
	if resp, body := s.do(t, "POST", "/v1/exec", `{"ephemeral":true,"command":"echo gone"}`, "Accept",
		eventType); !strings.Contains(body, "event: exit") || count() != 1 {
		t.Errorf("%v %s, %d containers", resp, body, count())
	}
	if resp, body := s.do(t, "POST", "/v1/exec", `{"background":true,"command":"true"}`); resp.StatusCode != 202 ||
		count() != 2 {
		t.Errorf("%d %s, %d containers", resp.StatusCode, body, count())
	}
	if ws := must[page[proto.Workspace]](t, s, "GET", "/v1/workspaces", nil).Data; len(ws) != 2 {
		t.Errorf("%d workspaces", len(ws))
	}
}

// An ephemeral container goes even if its client went first.
func TestEphemeralOfAClientThatLeft(t *testing.T) {
	s := newSite(t)
	for _, accept := range []string{"", eventType} {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if res, err := s.client.Do(s.request(t, ctx, "POST", "/v1/exec",
				`{"ephemeral":true,"command":"sleep 1000"}`, "Accept", accept)); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}()
		for s.Sessions.Counts().RunningExecs == 0 {
			runtime.Gosched() // it has to be created and started; there is no event for that but the answer
		}
		cancel()
		<-answered
		s.done.wait()
		if c := s.Sessions.Counts(); len(c.ByState) != 0 || c.Workspaces != 0 {
			t.Errorf("left behind: %+v", c)
		}
	}
}

// An archive is a container's image that takes its time.
type archive struct {
	sessiontest.Images
	fail error
}

func (a archive) Import(_ context.Context, name string, r io.Reader, progress func(session.ImageProgress)) (
	session.Image, error) {
	buf := make([]byte, 1000)
	for done := int64(0); ; {
		n, err := io.ReadFull(r, buf)
		done += int64(n)
		if err != nil {
			return session.Image{Name: name, SizeBytes: done}, a.fail
		}
		progress(session.ImageProgress{Stage: "importing", Done: done})
		if a.fail != nil {
			return session.Image{}, a.fail
		}
	}
}

func (a archive) Pull(_ context.Context, ref string, progress func(session.ImageProgress)) (session.Image, error) {
	progress(session.ImageProgress{Stage: "fetching", Item: "sha256:1", Done: 1, Total: 2})
	return session.Image{Name: ref}, a.fail
}

// Progress of an import is told while the archive still arrives.
func TestImportProgress(t *testing.T) {
	s := siteWith(t, session.Config{}, func(c *Config) { c.Images = archive{} })
	body, feed := io.Pipe()
	go func() { _, _ = feed.Write(make([]byte, 1000)) }()
	res, err := s.client.Do(s.request(t, t.Context(), "POST", "/v1/images/import?name=mine", body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	dec := json.NewDecoder(res.Body)
	var line imageLine
	if err := dec.Decode(&line); err != nil || line.ImageProgress == nil || line.Done != 1000 {
		t.Fatalf("%+v %v", line, err)
	}
	_, _ = feed.Write(make([]byte, 500))
	feed.Close()
	line = imageLine{}
	if err := dec.Decode(&line); err != nil || line.Image == nil || line.Image.Name != "mine" ||
		line.Image.SizeBytes != 1500 {
		t.Fatalf("%+v %v", line, err)
	}
	if err := dec.Decode(&line); err != io.EOF {
		t.Errorf("%v", err)
	}
	if lines := must[imageLine](t, s, "POST", "/v1/images/import?name=small", "tiny"); lines.Image == nil {
		t.Errorf("%+v", lines)
	}
}

func TestImportFails(t *testing.T) {
	broken := proto.Errorf(proto.InvalidArgument, "", "layer 2", "The archive is damaged.")
	s := siteWith(t, session.Config{}, func(c *Config) { c.Images = archive{fail: broken} })
	res, body := s.do(t, "POST", "/v1/images/import?name=x", "short")
	if res.StatusCode != 400 || !strings.Contains(body, "damaged") {
		t.Errorf("before the first line: %d %s", res.StatusCode, body)
	}
	for range 20 { // the connection must stay good for the next request
		res, body = s.do(t, "POST", "/v1/images/import?name=x", bytes.NewReader(make([]byte, 200_000)))
		if lines := strings.Split(strings.TrimSpace(body), "\n"); res.StatusCode != 200 || len(lines) != 2 ||
			!strings.Contains(lines[1], `"error":{"code":"invalid_argument"`) {
			t.Fatalf("after it: %d %s", res.StatusCode, body)
		}
	}
	if _, body := s.do(t, "POST", "/v1/images/pull", pull{"debian:12"}); !strings.HasPrefix(
		body, `{"stage":"fetching","item":"sha256:1","done":1,"total":2}`) {
		t.Errorf("%s", body)
	}
}

// An unknown method or path is an error like any other.
func TestUnknownMethodsAndPaths(t *testing.T) {
	s := newSite(t)
	if res, _ := s.do(t, "PATCH", "/v1/containers", nil); res.StatusCode != http.StatusMethodNotAllowed ||
		res.Header.Get("Allow") == "" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	if res, body := s.do(t, "GET", "/v1/boxes", nil); res.StatusCode != 404 || !strings.Contains(body, "request_id") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}
