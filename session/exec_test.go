package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/guest/output"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

func run(t *testing.T, s *session.Session, cmd proto.Cmd) proto.ExecResult {
	t.Helper()
	res, err := s.Run(context.Background(), cmd)
	if err != nil {
		t.Fatalf("running %+v: %v", cmd, err)
	}
	return res
}

func TestExecResults(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{Env: map[string]string{"FROM": "container"}})
	for _, c := range []struct {
		name           string
		cmd            proto.Cmd
		stdout, stderr string
		code           int
		reason         proto.EndReason
	}{
		{"streams apart", proto.Cmd{Command: "echo out; echo err >&2"}, "out\n", "err\n", 0, proto.EndExit},
		{"code", proto.Cmd{Command: "exit 7"}, "", "", 7, proto.EndExit},
		{"code 255", proto.Cmd{Command: "exit 255"}, "", "", 255, proto.EndExit},
		{"signal", proto.Cmd{Command: "kill -TERM $$"}, "", "", 143, proto.EndSignal},
		{"argv", proto.Cmd{Argv: []string{"printf", "%s|", "a b", "$HOME", ""}}, "a b|$HOME||", "", 0, proto.EndExit},
		{"env", proto.Cmd{Command: "echo $FROM $ALSO", Env: map[string]string{"ALSO": "exec"}}, "container exec\n", "",
			0, proto.EndExit},
		{"env wins", proto.Cmd{Command: "echo $FROM", Env: map[string]string{"FROM": "exec"}}, "exec\n", "", 0,
			proto.EndExit},
		{"user", proto.Cmd{Command: "id -u"}, "1000\n", "", 0, proto.EndExit},
		{"root", proto.Cmd{Command: "id -u", User: "root"}, "0\n", "", 0, proto.EndExit},
		{"cwd", proto.Cmd{Command: "pwd", JobID: "j"}, "/workspace/j\n", "", 0, proto.EndExit},
		{"cwd given", proto.Cmd{Command: "pwd", Cwd: "/tmp"}, "/tmp\n", "", 0, proto.EndExit},
		{"cwd relative", proto.Cmd{Command: "pwd", JobID: "j", Cwd: "sub/dir"}, "/workspace/j/sub/dir\n", "", 0,
			proto.EndExit},
		{"stdin", proto.Cmd{Command: "cat", Stdin: "all of it\n"}, "all of it\n", "", 0, proto.EndExit},
		{"no stdin", proto.Cmd{Command: "cat; echo end"}, "end\n", "", 0, proto.EndExit},
		{"no newline", proto.Cmd{Command: "printf x"}, "x", "", 0, proto.EndExit},
		{"invalid UTF-8", proto.Cmd{Command: `printf 'a\377b'`}, "a\uFFFDb", "", 0, proto.EndExit},
		{"output before exit", proto.Cmd{Command: "seq 1 20000 | tail -1"}, "20000\n", "", 0, proto.EndExit},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := run(t, s, c.cmd)
			r := res.Result.Result
			if r == nil {
				t.Fatalf("no result but %+v", res.Exec.End)
			}
			if r.Stdout != c.stdout || r.Stderr != c.stderr || r.ReturnCode != c.code ||
				res.Exec.End.Reason != c.reason {
				t.Errorf("stdout %q stderr %q code %d reason %s", r.Stdout, r.Stderr, r.ReturnCode, res.Exec.End.Reason)
			}
			if r.Content == nil {
				t.Error("content is null, want []")
			}
		})
	}
	t.Run("program not found", func(t *testing.T) {
		res := run(t, s, proto.Cmd{Argv: []string{"no-such-program"}})
		if r := res.Result.Result; r == nil || r.ReturnCode != 127 || !strings.Contains(r.Stderr, "no-such-program") {
			t.Errorf("%+v %+v", res.Result, res.Exec.End)
		}
	})
}

func TestJobOfRootIsEverybodys(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	run(t, s, proto.Cmd{Command: "echo root >r", User: proto.UserRoot, JobID: "j"})
	res := run(t, s, proto.Cmd{Command: "echo user >u && echo out >$OUTPUT_DIR/o && cat r", JobID: "j"})
	if r := res.Result.Result; r == nil || r.ReturnCode != 0 || r.Stdout != "root\n" || len(r.Content) != 1 {
		t.Errorf("after root had used the job first: %+v", r)
	}
}

func TestBadCommandsAreRefusedByName(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	for item, cmd := range map[string]proto.Cmd{
		"command":          {},
		"argv":             {Command: "x", Argv: []string{"y"}},
		"job_id":           {Command: "x", JobID: "../up"},
		"user":             {Command: "x", User: "no\nbody"},
		"timeout_seconds":  {Command: "x", TimeoutSeconds: -1},
		"max_output_bytes": {Command: "x", MaxOutputBytes: 1 << 40},
		"on_output_limit":  {Command: "x", OnOutputLimit: "explode"},
		"shell":            {Argv: []string{"x"}, Shell: "s"},
		"tty":              {Command: "x", TTY: &proto.WindowSize{}},
		"env":              {Command: "x", Env: map[string]string{"": "v"}},
		"stdin":            {Command: "x", Stdin: "s", OpenStdin: true},
		"/nonexistent/dir": {Command: "x", Cwd: "/nonexistent/dir"},
	} {
		_, err := s.Run(context.Background(), cmd)
		if code := proto.CodeOf(err); code != proto.InvalidArgument && code != proto.NotFound {
			t.Errorf("%s: %v", item, err)
			continue
		}
		wantCode(t, err, proto.CodeOf(err), item)
	}
	if n := len(s.Execs()); n != 0 {
		t.Errorf("%d execs are listed that never started", n)
	}
}

func TestTimeoutKillsTheWholeTree(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	res := run(t, s, proto.Cmd{Command: "echo before; (setsid sleep 987 &) ; sleep 987 & sleep 987",
		TimeoutSeconds: 0.5})
	if res.Result.Error == nil || res.Result.Error.ErrorCode != proto.BlockTimeExceeded ||
		res.Exec.End.Reason != proto.EndTimeout {
		t.Fatalf("%+v %+v", res.Result, res.Exec.End)
	}
	if res.Partial == nil || res.Partial.Stdout != "before\n" {
		t.Errorf("what it wrote before is lost: %+v", res.Partial)
	}
	if out := sessiontest.Bash(t, s, "pgrep -f 'sleep 98[7]' | wc -l").Stdout; strings.TrimSpace(out) != "0" {
		t.Errorf("%s processes of it are left", strings.TrimSpace(out))
	}
}

func TestOutputLimits(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	res := run(t, s, proto.Cmd{Command: "seq 1 1000000", MaxOutputBytes: 1 << 16})
	r := res.Result.Result
	if r == nil || !res.Exec.Truncated || !strings.HasPrefix(r.Stdout, "1\n2\n") ||
		!strings.HasSuffix(r.Stdout, "\n1000000\n") || !strings.Contains(r.Stdout, "[output truncated:") {
		t.Fatalf("truncated %v, %d bytes", res.Exec.Truncated, len(r.Stdout))
	}
	if len(r.Stdout) > 3<<16 {
		t.Errorf("%d bytes are kept of a limit of %d", len(r.Stdout), 1<<16)
	}
	if res.Exec.StdoutBytes != 6888896 {
		t.Errorf("counted %d bytes, want 6888896", res.Exec.StdoutBytes)
	}
	res = run(t, s, proto.Cmd{Command: "yes", MaxOutputBytes: 1 << 16, OnOutputLimit: proto.OutputFail})
	if res.Result.Error == nil || res.Result.Error.ErrorCode != proto.BlockTooLarge {
		t.Fatalf("%+v", res.Result)
	}
}

func TestShellKeepsItsState(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	sh := func(text string) proto.ExecResult {
		return run(t, s, proto.Cmd{Command: text, Shell: "main", JobID: "j"})
	}
	sh("X=42; cd /tmp; f() { echo fn $1; }")
	if r := sh("echo $X; pwd; f 1; echo e >&2; false").Result.Result; r == nil || r.Stdout != "42\n/tmp\nfn 1\n" ||
		r.Stderr != "e\n" || r.ReturnCode != 1 {
		t.Fatalf("%+v", r)
	}
	if r := run(t, s, proto.Cmd{Command: "echo ${X-unset}", Shell: "other",
		JobID: "j"}).Result.Result; r.Stdout != "unset\n" {
		t.Fatalf("two shells share variables: %+v", r)
	}
	if r := run(t, s, proto.Cmd{Command: "echo ${X-unset}", JobID: "j"}).Result.Result; r.Stdout != "unset\n" {
		t.Fatalf("a plain exec sees a shell's variables: %+v", r)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			res, err := s.Run(context.Background(), proto.Cmd{Command: fmt.Sprintf("Y=%d; sleep 0.02; echo $Y", i),
				Shell: "main"})
			if err != nil || res.Result.Result == nil || res.Result.Result.Stdout != fmt.Sprintf("%d\n", i) {
				t.Errorf("call %d: %+v %v", i, res.Result.Result, err)
			}
		})
	}
	wg.Wait()
	if r := sh("exit 3").Result.Result; r == nil || r.ReturnCode != 3 {
		t.Fatalf("exit 3: %+v", r)
	}
	if r := sh("echo ${X-fresh}").Result.Result; r == nil || r.Stdout != "fresh\n" {
		t.Fatalf("after exit: %+v", r)
	}
}

func TestBackgroundExec(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Command: "trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done",
		Background: true})
	if err != nil {
		t.Fatal(err)
	}
	untilOutput(t, e, "ready\n")
	if info := e.Info(); info.State != proto.ExecRunning || !info.Background {
		t.Errorf("%+v", info)
	}
	wantCode(t, e.Signal(ctx, "NOSUCH"), proto.InvalidArgument, "signal")
	if err := e.Signal(ctx, "TERM"); err != nil {
		t.Fatal(err)
	}
	res, err := e.Wait(ctx)
	if err != nil || res.Result.Result == nil || res.Result.Result.ReturnCode != 9 ||
		res.Result.Result.Stdout != "ready\nbye\n" {
		t.Fatalf("%+v %+v %v", res.Result.Result, res.Exec.End, err)
	}
	wantCode(t, e.Signal(ctx, "TERM"), proto.Conflict, e.ID())
	st.Reopen(t)
	again, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	old, err := again.FindExec(e.ID())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := old.Wait(ctx)
	if err != nil || kept.Result.Result == nil || kept.Result.Result.Stdout != "ready\nbye\n" ||
		kept.Result.Result.ReturnCode != 9 {
		t.Fatalf("after a restart: %+v %v", kept.Result.Result, err)
	}
}

// untilOutput follows e until its output contains want.
func untilOutput(t *testing.T, e *session.Exec, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	found, got := errors.New("found"), ""
	err := e.Follow(ctx, session.Cursor{}, func(ev proto.Event) error {
		if got += ev.Data; strings.Contains(got, want) {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		t.Fatalf("waiting for %q: %v, got %.500q", want, err, got)
	}
}

func TestClientGone(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	for _, detach := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		started := make(chan struct{})
		go func() {
			execs, _, err := s.NextExecs(context.Background(), s.Begun())
			if err == nil {
				untilOutput(t, execs[len(execs)-1], "up\n")
			}
			close(started)
			cancel()
		}()
		_, err := s.Run(ctx, proto.Cmd{Command: "echo up; read -r -t 2 x </dev/zero; sleep 0.3; echo done",
			Detach: detach})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		<-started
		execs := s.Execs()
		res, err := execs[len(execs)-1].Wait(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		want := proto.EndCanceled
		if detach {
			want = proto.EndExit
		}
		if res.Exec.End.Reason != want {
			t.Errorf("detach %v: ended by %s, want %s", detach, res.Exec.End.Reason, want)
		}
	}
}

// TestFinishAtShutdown checks that Close ends a command whose client waits during a shutdown, and that the reason is
// not the client.
func TestFinishAtShutdown(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: "sleep 1000"})
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down"))
	if _, err := e.Finish(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	st.Reopen(t)
	_, e = again(t, st, e)
	if end := waited(t, e).Exec.End; end.Reason != proto.EndStopped || end.Message != "the daemon was shut down" {
		t.Errorf("%+v", end)
	}
}

// TestWaitAfterTheEnd checks that an end counts even if the waiting caller's context ends at the same time.
func TestWaitAfterTheEnd(t *testing.T) {
	s := sessiontest.New(t, session.Config{}).Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: "echo x"})
	waited(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 30 { // a select takes either of two cases that are ready
		if res, err := e.Wait(ctx); err != nil || res.Result.Result.Stdout != "x\n" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

func TestConcurrencyCap(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{MaxExecs: 2})
	s := st.Create(t, proto.CreateContainer{})
	for range 2 {
		if _, err := s.Exec(ctx, proto.Cmd{Command: "sleep 600", Background: true}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Exec(ctx, proto.Cmd{Command: "true"})
	wantCode(t, err, proto.TooMany, s.ID())
	for _, e := range s.Execs() {
		e.Cancel(proto.EndKilled, "test")
		if res, _ := e.Wait(ctx); res.Exec.End.Reason != proto.EndKilled || res.Exec.End.ReturnCode != 137 {
			t.Errorf("%+v", res.Exec.End)
		}
	}
	run(t, s, proto.Cmd{Command: "true"})
}

func TestFollowersGetTheSameAsTheResult(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e,
		err := s.Exec(
		ctx,
		proto.Cmd{Command: `for i in $(seq 1 300); do echo "line $i é"; [ $((i%50)) = 0 ] && echo "e$i" >&2; done`})
	if err != nil {
		t.Fatal(err)
	}
	for _, late := range []bool{false, true} {
		if late {
			if _, err := e.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		got := map[proto.EventType]string{}
		var last proto.Event
		next := map[proto.EventType]int64{}
		err := e.Follow(ctx, session.Cursor{}, func(ev proto.Event) error {
			if ev.Type == proto.EventStdout || ev.Type == proto.EventStderr {
				if ev.Offset != next[ev.Type] || ev.DataBase64 != nil {
					t.Errorf("%s at %d, want %d", ev.Type, ev.Offset, next[ev.Type])
				}
				next[ev.Type] += int64(len(ev.Data))
				got[ev.Type] += ev.Data
			}
			last = ev
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		res, _ := e.Wait(ctx)
		if got[proto.EventStdout] != res.Result.Result.Stdout || got[proto.EventStderr] != res.Result.Result.Stderr {
			t.Errorf("late %v: the stream differs from the result", late)
		}
		if last.Type != proto.EventExit || last.Result.Result.Result.Stdout != res.Result.Result.Stdout {
			t.Errorf("late %v: last event %+v", late, last.Type)
		}
	}
	var rest bytes.Buffer
	_ = e.Follow(ctx, session.Cursor{Stdout: 10}, func(ev proto.Event) error {
		if ev.Type == proto.EventStdout {
			rest.WriteString(ev.Data)
		}
		return nil
	})
	if res, _ := e.Wait(ctx); rest.String() != res.Result.Result.Stdout[10:] {
		t.Error("following from an offset gives something else")
	}
}

func TestFloodWithSlowFollowersStaysBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Command: "head -c 400000000 /dev/zero | tr '\\0' x"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_ = e.Follow(ctx, session.Cursor{}, func(ev proto.Event) error {
				<-ctx.Done() // stops reading
				return ctx.Err()
			})
		})
	}
	res, err := e.Wait(context.Background())
	if err != nil || res.Exec.StdoutBytes != 400000000 || !res.Exec.Truncated {
		t.Fatalf("%d bytes, truncated %v, %v", res.Exec.StdoutBytes, res.Exec.Truncated, err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 64<<20 {
		t.Errorf("the heap holds %d MiB after a flood", m.HeapAlloc>>20)
	}
	cancel()
	wg.Wait()
}

func TestTerminal(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Argv: []string{"bash", "--norc", "-i"}, TTY: &proto.WindowSize{Rows: 30, Cols: 90},
		Env: map[string]string{"PS1": "$ ", "TERM": "dumb"}})
	if err != nil {
		t.Fatal(err)
	}
	untilOutput(t, e, "$ ")
	_ = e.Write(context.Background(), []byte("tty; stty size\n"))
	untilOutput(t, e, "30 90\r\n$ ")
	if err := e.Resize(ctx, proto.WindowSize{Rows: 11, Cols: 22}); err != nil {
		t.Fatal(err)
	}
	_ = e.Write(context.Background(), []byte("stty size; exit 5\n"))
	res, err := e.Wait(ctx)
	if err != nil || res.Result.Result == nil || res.Result.Result.ReturnCode != 5 ||
		!strings.Contains(res.Result.Result.Stdout, "11 22") {
		t.Fatalf("%+v %v", res.Result.Result, err)
	}
}

// fullPipe is a Python program. For each line of its input it writes 1 MiB into its empty pipe, which has room for all
// of it. The kernel lets no reader in before the write is done, so each read but the last finds a full buffer.
const fullPipe = `
import fcntl, os, sys
fcntl.fcntl(1, 1031, 1 << 20)  # F_SETPIPE_SZ
for line in sys.stdin:
    left = line.strip().encode() * (1 << 20)
    while left:
        left = left[os.write(1, left):]
`

// TestFullBuffersAreNotCopied checks that each full buffer of output reaches all followers whole: the buffer that the
// pipe was read into, with the header of the message before the data. Output up to the first MiB is the head of the
// result and may be copied.
func TestFullBuffersAreNotCopied(t *testing.T) {
	const rounds = 12
	ctx := context.Background()
	s := sessiontest.New(t, session.Config{}).Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Argv: []string{"python3", "-c", fullPipe}, OpenStdin: true,
		OnOutputLimit: proto.OutputWait})
	if err != nil {
		t.Fatal(err)
	}
	received, done := make(chan struct{}), make(chan error)
	for range 2 {
		go func() {
			at, whole := int64(0), 0
			err := e.FollowRaw(ctx, session.Cursor{}, func(ev proto.Event) error {
				if ev.Type == proto.EventStart {
					received <- struct{}{}
				}
				if ev.Type == proto.EventGap {
					return fmt.Errorf("a gap from %d to %d", ev.Offset, ev.Until)
				}
				return nil
			}, func(p session.Piece, message []byte) error {
				ev, err := proto.ParseOutput(message)
				if err != nil || ev.ExecID != e.ID() || ev.Type != proto.EventStdout || ev.Offset != at ||
					p.Offset != at || !bytes.Equal(ev.DataBase64, p.Data) {
					return fmt.Errorf("%d bytes at %d came as %d of %s at %d, %w", len(p.Data), at, len(ev.DataBase64),
						ev.Type, ev.Offset, err)
				}
				for ; len(p.Data) > 0; p.Data = p.Data[1:] {
					if want := 'a' + byte(at>>20); p.Data[0] != want {
						return fmt.Errorf("byte %d is %q, not %q", at, p.Data[0], want)
					}
					if at++; at%(1<<20) == 0 {
						received <- struct{}{}
					}
				}
				if p.Whole != nil && at > 1<<20 {
					whole++
				}
				return nil
			})
			if want := (rounds - 1) * ((1 << 20) / output.BufferBytes); err == nil && whole != want {
				err = fmt.Errorf("%d buffers came whole, want %d", whole, want)
			}
			done <- err
		}()
	}
	for i := range rounds {
		<-received // all output of the round before, by both followers
		<-received
		if err := e.Write(ctx, []byte{'a' + byte(i), '\n'}); err != nil {
			t.Fatal(err)
		}
	}
	<-received
	<-received
	if err := e.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Input of a command that has ended can be closed, but takes no more.
func TestInputOfACommandThatHasEnded(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: "true", OpenStdin: true, Background: true})
	waited(t, e)
	if err := e.CloseStdin(); err != nil {
		t.Error(err)
	}
	if err := e.Write(t.Context(), []byte("more")); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("writing: %v", err)
	}
}

func TestLosslessExecWaitsForWhoFollows(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Command: "seq 1 2000000", MaxOutputBytes: 1 << 16, OnOutputLimit: proto.OutputWait})
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	err = e.Follow(ctx, session.Cursor{}, func(ev proto.Event) error {
		n += int64(len(ev.Data))
		if ev.Type == proto.EventGap {
			t.Errorf("a gap from %d to %d", ev.Offset, ev.Until)
		}
		return nil
	})
	if err != nil || n != 14888896 {
		t.Errorf("%d bytes came, want 14888896; %v", n, err)
	}
	left, err := s.Exec(ctx, proto.Cmd{Command: "yes", MaxOutputBytes: 1 << 16, OnOutputLimit: proto.OutputWait,
		TimeoutSeconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := left.Wait(ctx); err != nil || res.Exec.End.Reason != proto.EndTimeout { // it never had a follower
		t.Errorf("%+v %v", res.Exec.End, err)
	}
	res := run(t, s, proto.Cmd{Command: "seq 1 200000", MaxOutputBytes: 1 << 16, OnOutputLimit: proto.OutputWait})
	if res.Result.Result == nil || !res.Exec.Truncated {
		t.Errorf("without a follower: %+v", res.Exec)
	}
}

// TestLosslessExecGoesOnForWhoOnlyWaits checks that a command that awaits its client does not wait for a reader if its
// client only waits for its end, from the start on or after it has stopped reading.
func TestLosslessExecGoesOnForWhoOnlyWaits(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	cmd := proto.Cmd{Command: "seq 1 2000000", MaxOutputBytes: 1 << 16, OnOutputLimit: proto.OutputWait,
		TimeoutSeconds: 20, ReconnectSeconds: 3600}
	if res := run(t, s, cmd); res.Exec.End.Reason != proto.EndExit || !res.Exec.Truncated {
		t.Errorf("nobody reads it: %+v", res.Exec.End)
	}
	cmd.ReconnectSeconds = 1
	stopped := errors.New("it reads no more")
	left := start(t, s, cmd)
	if err := left.Follow(ctx, session.Cursor{}, func(proto.Event) error { return stopped }); err != stopped {
		t.Fatal(err)
	}
	if res, err := left.Wait(ctx); err != nil || res.Exec.End.Reason != proto.EndExit {
		t.Errorf("nobody reads it any more: %+v, %v", res.Exec.End, err)
	}
}

// TestLosslessBackgroundExec checks that a command that outlives its client waits while it is followed, also under the
// next daemon, and goes on with the head and the tail of its output while it is not.
func TestLosslessBackgroundExec(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	const lines = "seq 1 2000000" // far more than is kept, in the daemon and in the guest
	cmd := proto.Cmd{Command: "echo begin; read x; " + lines, OpenStdin: true, Detach: true, MaxOutputBytes: 1 << 16,
		OnOutputLimit: proto.OutputWait}
	begin := func(e *session.Exec) func(proto.Event) {
		return func(ev proto.Event) {
			if strings.Contains(ev.Data, "begin") {
				if err := errors.Join(e.Write(ctx, []byte("\n")), e.CloseStdin()); err != nil {
					t.Error(err)
				}
			}
		}
	}
	whole := func(e *session.Exec) {
		t.Helper()
		var n int64
		began := begin(e)
		err := e.Follow(ctx, session.Cursor{}, func(ev proto.Event) error {
			if n += int64(len(ev.Data)); ev.Type == proto.EventGap {
				t.Errorf("a gap from %d to %d", ev.Offset, ev.Until)
			}
			began(ev)
			return nil
		})
		if err != nil || n != 14888902 {
			t.Errorf("%d bytes came, want 14888902; %v", n, err)
		}
	}
	whole(start(t, s, cmd))

	e := start(t, s, cmd)
	st.Reopen(t)
	s, e = again(t, st, e)
	whole(e)

	alone := start(t, s, proto.Cmd{Command: lines, Background: true, MaxOutputBytes: 1 << 16,
		OnOutputLimit: proto.OutputWait})
	if res := waited(t, alone); res.Exec.End.Reason != proto.EndExit || !res.Exec.Truncated {
		t.Errorf("without a follower: %+v", res.Exec)
	}
	if text, missing := followed(t, alone); missing == 0 || !strings.HasPrefix(text, "1\n2\n") ||
		!strings.HasSuffix(text, "\n2000000\n") {
		t.Errorf("afterwards %d bytes are there and %d missing", len(text), missing)
	}
}

// TestProcessID checks that a command has the process ID that it has inside, also after a restart of the daemon, and is
// found by it while it runs.
func TestProcessID(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: "echo $$; read x; exit 3", OpenStdin: true, Background: true})
	pid := strconv.Itoa(e.Info().PID)
	for range 2 {
		if x, err := s.FindExec(pid); err != nil || x.ID() != e.ID() {
			t.Errorf("process %s is %v: %v", pid, x, err)
		}
		st.Reopen(t)
		s, e = again(t, st, e)
		e.Info()
		s.Execs()
		if err := s.Start(t.Context()); err != nil { // the daemon meets the guest
			t.Fatal(err)
		}
	}
	if x, err := s.FindExec("1"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("the guest is %v: %v", x, err)
	}
	if err := e.Write(t.Context(), []byte("\n")); err != nil {
		t.Fatal(err)
	}
	res := waited(t, e)
	if got := strings.TrimSpace(res.Result.Result.Stdout); got != pid || res.Exec.PID != e.Info().PID {
		t.Errorf("inside it is process %s, outside %s", got, pid)
	}
	if _, err := s.FindExec(pid); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("after its end: %v", err)
	}
}

// TestLostShellIsTold checks that the end of a persistent shell is told once: by the command that ended the shell, or
// else by the next command in it, also after a restart of the daemon. An end on request is not told.
func TestLostShellIsTold(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	step := func(text, want string) {
		t.Helper()
		notes := run(t, s, proto.Cmd{Command: text, Shell: "main", TimeoutSeconds: 30}).Notes
		if want == "" && len(notes) > 0 || want != "" && (len(notes) != 1 || !strings.Contains(notes[0], want)) {
			t.Errorf("%s: %q, want %q", text, notes, want)
		}
	}
	const ended, anew = `shell "main" ended with this command`, `shell "main" was started anew`
	for _, text := range []string{"exit 3", "set -e; false; true", "exec true", "kill -9 $$", "set -u; echo $none"} {
		step("X=1", "")
		step(text, ended)
		step("echo next", "")
	}
	if notes := run(t, s, proto.Cmd{Command: "sleep 1000", Shell: "main", TimeoutSeconds: 0.1}).Notes; len(notes) != 1 {
		t.Errorf("a time limit: %q", notes)
	}
	step("X=1", "")
	if err := s.CloseShell(t.Context(), "main"); err != nil {
		t.Fatal(err)
	}
	step("X=1", "")
	for _, lose := range []func(){
		func() {
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		func() { // the signal is sent before the shell is gone
			const shells = "-f '^bash.*__berth_cal[l]'"
			run(t, s, proto.Cmd{Command: "pkill -9 " + shells + "; while pgrep " + shells + "; do :; done", User: "root"})
		},
	} {
		lose()
		step("echo next", anew)
		step("X=1", "")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.Reopen(t)
	var err error
	if s, err = st.Sessions.Get(sessiontest.Owner, s.ID()); err != nil {
		t.Fatal(err)
	}
	step("echo next", anew)
	step("exit", ended)
	if notes := run(t, s, proto.Cmd{Command: "true", Shell: "other"}).Notes; len(notes) > 0 {
		t.Errorf("a new shell: %q", notes)
	}
}
