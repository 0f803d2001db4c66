package pid1

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/guest/client"
	"berth/guest/output"
	"berth/guest/wire"
	"berth/proto"
)

// away closes all connections at once, as a daemon that dies does.
func (w *world) away() {
	w.t.Helper()
	must(w.t, w.Close())
	w.Client = client.NewClient(w.dialer(false))
}

// keep returns a command that is kept under an ID.
func keep(id, text string) wire.Command { return wire.Command{ID: id, Text: text, Keep: 1 << 20} }

func (w *world) attach(id string, have [2]int64, stdin bool, o *collected) *client.Process {
	w.t.Helper()
	p, err := w.Attach(short(w.t), id, have, stdin, o.sink)
	if err != nil {
		w.t.Fatalf("attaching to %s: %v", id, err)
	}
	return p
}

func (w *world) write(path, text string) {
	w.t.Helper()
	_, err := w.Write(short(w.t), "user", path, wire.WriteOptions{}, strings.NewReader(text))
	must(w.t, err)
}

// TestKeptCommandOutlivesItsConnection checks that a kept command continues without its daemon, and that the next
// daemon gets all of its output.
func TestKeptCommandOutlivesItsConnection(t *testing.T) {
	checkLeaks(t)
	w := newWorld(t, false)
	var first, second, third collected
	w.start(
		keep(
			"e1",
			`echo one; echo err >&2; until test -e go; do sleep 0.01; done; echo two; until test -e on; do sleep 0.01; done; echo three; exit 7`), &first)
	first.until(t, proto.Stdout, "one\n")
	w.away()
	w.write("go", "")
	have, err := w.Claim(short(t), []string{"e1", "e2"})
	if err != nil || fmt.Sprint(have) != "[e1]" {
		t.Fatalf("kept: %v %v", have, err)
	}
	p := w.attach("e1", [2]int64{}, false, &second)
	second.until(t, proto.Stdout, "two\n")
	if p.Ended() {
		t.Error("it is told to have ended")
	}
	w.away()
	w.write("on", "")
	p = w.attach("e1", [2]int64{4, 4}, false, &third)
	if r := w.wait(p, &third); r.Code != 7 || r.stdout != "two\nthree\n" || r.stderr != "" || r.PeakBytes == 0 {
		t.Errorf("%+v", r)
	}
	if second.stdout() != "one\ntwo\n" || second.stderr() != "err\n" {
		t.Errorf("the second daemon saw %q and %q", second.stdout(), second.stderr())
	}
	for range 2 { // until the command is forgotten
		var again collected
		p := w.attach("e1", [2]int64{}, false, &again)
		if r := w.wait(p, &again); !p.Ended() || r.Code != 7 || r.stdout != "one\ntwo\nthree\n" || r.Ago <= 0 {
			t.Errorf("%+v", r)
		}
	}
	must(t, w.Forget(short(t), "e1"))
	_, err = w.Attach(short(t), "e1", [2]int64{}, false, first.sink)
	wantCode(t, err, proto.NotFound)
}

// TestAttachGivenUp checks that another daemon can attach after one was stopped while it attached.
func TestAttachGivenUp(t *testing.T) {
	w := newWorld(t, false)
	var o, again collected
	w.start(keep("e", "echo on; until test -e go; do sleep 0.01; done; echo off"), &o)
	o.until(t, proto.Stdout, "on")
	w.away()
	for i := range 300 { // at many moments of the attachment
		stopped, stop := context.WithTimeout(t.Context(), time.Duration(i)*2*time.Microsecond)
		_, _ = w.Attach(stopped, "e", [2]int64{}, false, o.sink)
		stop()
		w.away()
	}
	p := w.attach("e", [2]int64{}, false, &again)
	w.write("go", "")
	if r := w.wait(p, &again); r.Code != 0 || r.stdout != "on\noff\n" {
		t.Errorf("%+v", r)
	}
}

// TestForegroundEndsWithItsConnection checks that a command that is not kept ends with its daemon, however its
// processes hide.
func TestForegroundEndsWithItsConnection(t *testing.T) {
	w := newWorld(t, false)
	var o collected
	w.start(wire.Command{Text: `(setsid sleep 2222 &) ; env -i setsid sleep 2222 & echo on; sleep 2222`}, &o)
	o.until(t, proto.Stdout, "on")
	w.away()
	eventually(t, "the foreground command is gone", func() bool { return w.alive("sleep 2222") == "" })
}

// TestClaimEndsStrangers checks that a command unknown to the daemon ends, and that a command that was given up never
// starts.
func TestClaimEndsStrangers(t *testing.T) {
	w := newWorld(t, false)
	var o collected
	w.start(keep("stranger", `setsid sleep 3333 & echo on; sleep 3333`), &o)
	o.until(t, proto.Stdout, "on")
	w.away()
	have, err := w.Claim(short(t), []string{"never"})
	if err != nil || len(have) != 0 {
		t.Errorf("%v %v", have, err)
	}
	if left := w.alive("sleep 3333"); left != "" {
		t.Errorf("still there: %s", left)
	}
	_, err = w.Start(short(t), keep("never", "touch ran"), o.sink)
	wantCode(t, err, proto.Canceled)
	if r := w.bash("test -e ran"); r.Code == 0 {
		t.Error("it ran")
	}
	_, err = w.Start(short(t), wire.Command{Text: "true", Keep: 1}, o.sink)
	wantCode(t, err, proto.InvalidArgument)
}

// TestKeptOutputIsBounded checks that output without a reader is limited, and that its beginning and its end are
// kept.
func TestKeptOutputIsBounded(t *testing.T) {
	w := newWorld(t, false)
	var first collected
	w.start(wire.Command{ID: "e", Keep: 64 << 10,
		Text: `echo begun; until test -e go; do sleep 0.01; done; seq 1000000; echo ended >&2`}, &first)
	first.until(t, proto.Stdout, "begun")
	w.away()
	w.write("go", "")
	eventually(t, "it has ended", func() bool { return w.alive("seq 1000000") == "" && w.alive("until test") == "" })
	o := output.New(64<<10, nil)
	p, err := w.Attach(short(t), "e", [2]int64{}, false, func(s proto.Stream, at int64, b []byte) {
		o.WriteAt(s, at, b)
	})
	must(t, err)
	x, err := p.Wait(short(t))
	must(t, err)
	head, tail, dropped := o.Text(proto.Stdout)
	if x.Code != 0 || !strings.HasPrefix(string(head), "begun\n1\n2\n3\n") ||
		!strings.HasSuffix(string(tail), "\n999999\n1000000\n") ||
		int64(len(head)+len(tail))+dropped != 6888896+6 || len(head)+len(tail) > 200<<10 {
		t.Errorf("%+v, %d+%d bytes, %d dropped", x, len(head), len(tail), dropped)
	}
}

// TestKeptOutputFitsTheMemory checks that kept output takes a share of the container's current memory limit. The
// limit may be lower than at the guest's start.
func TestKeptOutputFitsTheMemory(t *testing.T) {
	w := newWorld(t, false, cgroup+"="+memoryCgroup(t, 4<<30))
	lower := w.run(wire.Command{User: proto.UserRoot,
		Text: "for f in memory.max memory/memory.limit_in_bytes; do test ! " +
			"-e /sys/fs/cgroup/$f || echo $((160 << 20)) >/sys/fs/cgroup/$f; done"})
	if lower.Code != 0 {
		t.Fatalf("%+v", lower)
	}
	var first collected
	w.start(wire.Command{ID: "e", Keep: 16 << 20,
		Text: `echo begun; until test -e go; do sleep 0.01; done; seq 2000000; touch over`}, &first)
	first.until(t, proto.Stdout, "begun")
	w.away()
	w.write("go", "")
	eventually(t, "all of it was written", func() bool { return w.bash("test -e over").Code == 0 })
	o := output.New(16<<20, nil)
	p, err := w.Attach(short(t), "e", [2]int64{}, false, func(s proto.Stream, at int64, b []byte) {
		o.WriteAt(s, at, b)
	})
	must(t, err)
	x, err := p.Wait(short(t))
	must(t, err)
	if _, _, dropped := o.Text(proto.Stdout); x.Code != 0 || dropped == 0 {
		t.Errorf("%+v, %d of some 15 million bytes dropped", x, dropped)
	}
}

// TestKeptOutputIsWholeForWhoeverReads checks that no output is lost while a daemon reads, however much there is.
func TestKeptOutputIsWholeForWhoeverReads(t *testing.T) {
	w := newWorld(t, false)
	var o collected
	r := w.wait(w.start(wire.Command{ID: "e", Keep: 64 << 10, Text: `seq 300000; seq 300000 >&2`}, &o), &o)
	if r.Code != 0 || len(r.stdout) != 1988895 || len(r.stderr) != 1988895 {
		t.Errorf("%+v: %d and %d bytes", r.Exit, len(r.stdout), len(r.stderr))
	}
}

// TestKeptInput checks that another daemon can continue the input, and that no byte is counted twice.
func TestKeptInput(t *testing.T) {
	w := newWorld(t, false)
	var first, second collected
	big := strings.Repeat("x", 100_000) // more than a pipe holds
	p := w.start(wire.Command{ID: "e", Keep: 4 << 20, Stdin: true, Text: `until test -e go; do sleep 0.01; done; cat`},
		&first)
	_, err := p.Write(short(t), []byte("taken"))
	must(t, err)
	// More than a pipe holds is under way when the daemon dies. The daemon got no credit for the part that is lost.
	hurry, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err = p.Write(hurry, []byte(big)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	w.away()
	p = w.attach("e", [2]int64{}, true, &second)
	w.write("go", "")
	for range 20 { // far more than the window
		_, err = p.Write(short(t), []byte(big))
		must(t, err)
	}
	must(t, p.CloseStdin())
	if r := w.wait(p, &second); r.Code != 0 || !strings.HasPrefix(r.stdout, "taken") || len(r.stdout) < 5+20*len(big) ||
		len(r.stdout) > 5+21*len(big) {
		t.Errorf("%+v: %d bytes came back", r.Exit, len(r.stdout))
	}
	// All of the input comes at once. The daemon can then disconnect.
	w.start(wire.Command{ID: "i", Keep: 4 << 20, Input: []byte(strings.Repeat("y", 2_000_000)),
		Text: `until test -e go2; do sleep 0.01; done; wc -c`}, &first)
	w.away()
	w.write("go2", "")
	var third collected
	p = w.attach("i", [2]int64{}, true, &third)
	if r := w.wait(p, &third); strings.TrimSpace(r.stdout) != "2000000" {
		t.Errorf("%+v", r)
	}
	_, err = p.Write(short(t), []byte("late"))
	wantCode(t, err, proto.Conflict)
}

// TestKeptControls checks signals, kills and terminals from an attached caller.
func TestKeptControls(t *testing.T) {
	w := newWorld(t, false)
	var a, b, c collected
	w.start(keep("sig", `trap 'echo caught; exit 3' TERM; echo on; while :; do sleep 0.01; done`), &a)
	a.until(t, proto.Stdout, "on")
	w.start(keep("kill", `setsid sleep 4444 & echo on; sleep 4444`), &b)
	b.until(t, proto.Stdout, "on")
	w.start(wire.Command{ID: "tty", Keep: 1 << 20, Stdin: true, TTY: &proto.WindowSize{Rows: 10, Cols: 20},
		Text: `echo on; read x; stty size; echo "<$x>"`}, &c)
	c.until(t, proto.Stdout, "on")
	w.away()
	p := w.attach("sig", [2]int64{}, false, &a)
	must(t, p.Signal(short(t), 15))
	if r := w.wait(p, &a); r.Code != 3 || !strings.HasSuffix(r.stdout, "caught\n") {
		t.Errorf("%+v", r)
	}
	p = w.attach("kill", [2]int64{}, false, &b)
	must(t, p.Kill(short(t)))
	if r := w.wait(p, &b); r.Code != 137 || w.alive("sleep 4444") != "" {
		t.Errorf("%+v", r)
	}
	p = w.attach("tty", [2]int64{}, true, &c)
	must(t, p.Resize(short(t), proto.WindowSize{Rows: 33, Cols: 44}))
	_, err := p.Write(short(t), []byte("in\n"))
	must(t, err)
	if r := w.wait(p, &c); !strings.Contains(r.stdout, "33 44") || !strings.Contains(r.stdout, "<in>") {
		t.Errorf("%+v", r)
	}
}

// TestKeptShellCall checks that a call on a persistent shell is kept too, and that the shell then runs the next call.
func TestKeptShellCall(t *testing.T) {
	w := newWorld(t, false)
	var a, b collected
	cmd := keep("call", `V=7; echo on; until test -e go; do sleep 0.01; done; echo off; (exit 5)`)
	cmd.Shell = "s"
	w.start(cmd, &a)
	a.until(t, proto.Stdout, "on")
	// A call that waits for its turn ends with its daemon, which was not informed of a start.
	queued, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		cmd := keep("queued", "touch ran")
		cmd.Shell = "s"
		_, err := w.Start(queued, cmd, func(proto.Stream, int64, []byte) {})
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w.away()
	w.write("go", "")
	p := w.attach("call", [2]int64{}, false, &b)
	if r := w.wait(p, &b); r.Code != 5 || r.stdout != "on\noff\n" {
		t.Errorf("%+v", r)
	}
	if r := w.run(wire.Command{Shell: "s", Text: "echo $V; test -e ran || echo not run"}); r.stdout != "7\nnot run\n" {
		t.Errorf("%+v", r)
	}
}

// TestKeptIsGivenUpOrTakenOver checks that Drop ends and forgets a kept command, and that a second attachment
// replaces the first.
func TestKeptIsGivenUpOrTakenOver(t *testing.T) {
	w := newWorld(t, false)
	var o, second collected
	p := w.start(keep("e", `setsid sleep 5555 & echo on; sleep 5555`), &o)
	o.until(t, proto.Stdout, "on")
	q := w.attach("e", [2]int64{}, false, &second)
	if _, err := p.Wait(short(t)); proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("the first goes on: %v", err)
	}
	second.until(t, proto.Stdout, "on")
	q.Drop()
	eventually(t, "it is gone", func() bool { return w.alive("sleep 5555") == "" })
	eventually(t, "it is forgotten", func() bool {
		_, err := w.Attach(short(t), "e", [2]int64{}, false, o.sink)
		return proto.CodeOf(err) == proto.NotFound
	})
}
