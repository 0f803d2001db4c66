package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

// again returns a session and one of its execs after a restart.
func again(t *testing.T, st *sessiontest.Stack, e *session.Exec) (*session.Session, *session.Exec) {
	t.Helper()
	s, err := st.Sessions.Get(sessiontest.Owner, e.Info().ContainerID)
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.FindExec(e.ID())
	if err != nil {
		t.Fatal(err)
	}
	return s, x
}

func start(t *testing.T, s *session.Session, cmd proto.Cmd) *session.Exec {
	t.Helper()
	e, err := s.Exec(context.Background(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func waited(t *testing.T, e *session.Exec) proto.ExecResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	res, err := e.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func touch(t *testing.T, s *session.Session, path string) {
	t.Helper()
	if _, err := s.WriteFile(context.Background(), proto.UserDefault, path, session.WriteOptions{Mode: 0o644},
		strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
}

const untilGo = `until test -e /workspace/go; do sleep 0.01; done; `

// TestDetachedExecOutlivesTheDaemon checks that a detached exec continues over two restarts, loses no line, repeats
// none, and is recorded like any other.
func TestDetachedExecOutlivesTheDaemon(t *testing.T) {
	for _, cmd := range []proto.Cmd{{Background: true}, {Detach: true}, {IdempotencyKey: "k"},
		{Background: true, Shell: "s"}} {
		t.Run(fmt.Sprintf("%v %v %v %v", cmd.Background, cmd.Detach, cmd.IdempotencyKey, cmd.Shell),
			func(t *testing.T) {
				st := sessiontest.New(t, session.Config{})
				s := st.Create(t, proto.CreateContainer{})
				cmd.Command = `n=0; until test -e /workspace/go; do n=$((n+1)); echo $n; sleep 0.002; done; echo end >&2; echo made >$OUTPUT_DIR/f; (exit 7)`
				e := start(t, s, cmd)
				untilOutput(t, e, "\n3\n")
				for range 2 {
					st.Reopen(t)
					if _, err := e.Wait(context.Background()); proto.CodeOf(err) != proto.Unavailable {
						t.Errorf("whoever waited was told %v", err)
					}
					s, e = again(t, st, e)
					if info := e.Info(); info.State != proto.ExecRunning || s.Info().RunningExecs != 1 {
						t.Fatalf("%+v", info)
					}
					untilOutput(t, e, "\n3\n")
				}
				touch(t, s, "/workspace/go")
				res := waited(t, e)
				if res.Exec.End.Reason != proto.EndExit || res.Exec.End.ReturnCode != 7 || res.Result.Result == nil ||
					res.Result.Result.Stderr != "end\n" {
					t.Fatalf("%+v %+v", res.Exec.End, res.Result.Result)
				}
				if cmd.Shell == "" && len(res.Result.Result.Content) != 1 {
					t.Errorf("stored %+v", res.Result.Result.Content)
				}
				for i, line := range strings.Split(strings.TrimSuffix(res.Result.Result.Stdout, "\n"), "\n") {
					if line != fmt.Sprint(i+1) {
						t.Fatalf("line %d is %q", i+1, line)
					}
				}
				st.Reopen(t)
				_, e = again(t, st, e)
				if kept := waited(t, e); kept.Result.Result == nil ||
					kept.Result.Result.Stdout != res.Result.Result.Stdout || *kept.Exec.End != *res.Exec.End {
					t.Errorf("after the end: %+v", kept.Exec)
				}
			})
	}
}

// TestEndedWhileNobodyWasThere checks that an exec that ended without a daemon has its true end and its true time.
func TestEndedWhileNobodyWasThere(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: `echo begun; ` + untilGo +
		`head -c 30000000 /dev/zero | sort >/dev/null; echo ended; kill -TERM $$`, Detach: true, TimeoutSeconds: 20})
	untilOutput(t, e, "begun\n")
	st.Close(t)
	g := client.NewClient(dialer(st, s.ID()))
	if _, err := g.Write(context.Background(), proto.UserDefault, "/workspace/go", wire.WriteOptions{},
		strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	for r := 0; r == 0; {
		p, err := g.Start(context.Background(), wire.Command{Text: "pgrep -f 'begun; unti[l]'"},
			func(proto.Stream, int64, []byte) {})
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.Wait(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		r = x.Code
	}
	g.Close()
	time.Sleep(300 * time.Millisecond) // so that the times of its end and of the restart differ
	opened := time.Now()
	st.Open(t)
	_, e = again(t, st, e)
	res := waited(t, e)
	end := res.Exec.End
	if end.Reason != proto.EndSignal || end.ReturnCode != 143 || end.CPUSeconds <= 0 || end.PeakBytes == 0 ||
		res.Result.Result.Stdout != "begun\nended\n" {
		t.Errorf("%+v %+v", end, res.Result.Result)
	}
	if !res.Exec.EndedAt.Before(opened) || res.Exec.EndedAt.Before(res.Exec.StartedAt.Time) {
		t.Errorf("ended at %v, and the daemon came back at %v", res.Exec.EndedAt, opened)
	}
}

// TestLostSaysWhy checks that a lost exec has its specific reason, and that the audit log has the end of its
// container.
func TestLostSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name, want string
		reason     proto.EndReason
		meanwhile  func(*sessiontest.Stack, string)
	}{
		{"host", "host was restarted", proto.EndHostRestart, func(st *sessiontest.Stack, id string) {
			st.Runtime.(*sessiontest.Runtime).Kill(id)
			st.Reboot()
		}},
		{"guest", "container ended while the daemon was not there", proto.EndLost, func(st *sessiontest.Stack,
			id string) {
			st.Runtime.(*sessiontest.Runtime).Kill(id)
		}},
		{"sandbox", "container ended while the daemon was not there", proto.EndLost, func(st *sessiontest.Stack,
			id string) {
			if err := st.Runtime.Stop(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stops := make(chan proto.AuditEntry, 100)
			st := sessiontest.New(t, session.Config{Boot: "b", Audit: func(e proto.AuditEntry) {
				if e.Act == "container.stop" {
					stops <- e
				}
			}})
			s := st.Create(t, proto.CreateContainer{})
			e := start(t, s, proto.Cmd{Command: "echo on; sleep 1000", Background: true})
			untilOutput(t, e, "on\n")
			st.Close(t)
			c.meanwhile(st, s.ID())
			st.Open(t)
			s, e = again(t, st, e)
			if end := waited(t, e).Exec.End; end.Reason != c.reason || !strings.Contains(end.Message, c.want) {
				t.Errorf("%+v", end)
			}
			if out := sessiontest.Bash(t, s, "echo back").Stdout; out != "back\n" {
				t.Errorf("%q", out)
			}
			if len(stops) != 1 {
				t.Fatalf("%d stops are audited", len(stops))
			}
			if stop := <-stops; stop.ContainerID != s.ID() || stop.Actor != proto.ActorDaemon ||
				!strings.Contains(stop.Note, "while the daemon was not there") {
				t.Errorf("audited: %+v", stop)
			}
		})
	}
}

// TestTimeLimitOutlivesTheDaemon checks that the time limit counts from the start of the exec, even under another
// daemon.
func TestTimeLimitOutlivesTheDaemon(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: "echo on; sleep 1000", Background: true, TimeoutSeconds: 1.5})
	untilOutput(t, e, "on\n")
	st.Reopen(t)
	_, e = again(t, st, e)
	res := waited(t, e)
	if res.Exec.End.Reason != proto.EndTimeout || res.Exec.Duration(time.Time{}) > 20*time.Second ||
		res.Exec.Duration(time.Time{}) < time.Second {
		t.Errorf("%+v after %v", res.Exec.End, res.Exec.Duration(time.Time{}))
	}
}

// TestControlsOutliveTheDaemon checks that input, terminal and signals of an exec work after a restart.
func TestControlsOutliveTheDaemon(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	cat := start(t, s, proto.Cmd{Command: "cat", OpenStdin: true, Background: true})
	tty := start(t, s, proto.Cmd{Command: "read x; stty size; echo got $x", TTY: &proto.WindowSize{Rows: 1, Cols: 2},
		Detach: true})
	all := start(t, s, proto.Cmd{Command: untilGo + "wc -c", Stdin: strings.Repeat("x", 1_000_000), Detach: true})
	trap := start(t, s, proto.Cmd{Command: "trap 'echo bye; exit 4' TERM; echo on; while :; do sleep 0.01; done",
		Background: true})
	kill := start(t, s, proto.Cmd{Command: "sleep 1000", Background: true})
	untilOutput(t, trap, "on\n")
	if err := cat.Write(ctx, []byte("before ")); err != nil {
		t.Fatal(err)
	}
	st.Reopen(t)
	for _, e := range []**session.Exec{&cat, &tty, &all, &trap, &kill} {
		s, *e = again(t, st, *e)
	}
	touch(t, s, "/workspace/go")
	for _, err := range []error{
		cat.Write(ctx, []byte("after")), cat.CloseStdin(), tty.Resize(ctx, proto.WindowSize{Rows: 3, Cols: 4}),
		tty.Write(ctx, []byte("it\n")),
		trap.Signal(ctx, "TERM"), kill.Signal(ctx, "KILL"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for e, want := range map[*session.Exec]string{cat: "before after", tty: "3 4\r\ngot it", all: "1000000",
		trap: "bye"} {
		if res := waited(t, e); res.Result.Result == nil || !strings.Contains(res.Result.Result.Stdout, want) {
			t.Errorf("want %q: %+v %+v", want, res.Exec.End, res.Result.Result)
		}
	}
	if end := waited(t, kill).Exec.End; end.Reason != proto.EndKilled {
		t.Errorf("%+v", end)
	}
}

// TestStopEndsDetachedExecs checks that a stop of one container, or of all, ends detached execs too.
func TestStopEndsDetachedExecs(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	for name, stop := range map[string]func(*session.Session) error{
		"stop":   func(s *session.Session) error { return s.Stop(ctx) },
		"delete": func(s *session.Session) error { return st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false) },
		"all":    func(*session.Session) error { return st.Sessions.StopAll(ctx) },
	} {
		s := st.Create(t, proto.CreateContainer{})
		e := start(t, s, proto.Cmd{Command: "echo on; sleep 1000", Background: true})
		untilOutput(t, e, "on\n")
		st.Reopen(t)
		s, e = again(t, st, e)
		if err := stop(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if end := waited(t, e).Exec.End; end.Reason != proto.EndStopped {
			t.Errorf("%s: %+v", name, end)
		}
	}
}

// TestStopBetweenUseAndStart checks that a command that comes just before a stop does not start the container again.
func TestStopBetweenUseAndStart(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	held := holdJobs(t, st)
	s := st.Create(t, proto.CreateContainer{})
	reached, on := make(chan struct{}), make(chan struct{})
	held.begin = func() { close(reached); <-on }
	failed := make(chan error, 1)
	go func() {
		_, err := s.Run(context.Background(), proto.Cmd{Command: "touch ran"})
		failed <- err
	}()
	<-reached
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	held.begin = nil
	close(on)
	wantCode(t, within(t, "the command", failed), proto.Unavailable, s.ID())
	if info := s.Info(); info.State != proto.StateStopped || info.Generation != 1 ||
		len(sandboxes(t, st.Runtime)) != 0 {
		t.Errorf("%+v", info)
	}
}

// TestIdempotencyKey checks that equal keys get the same exec: for parallel requests, for later ones, and after a
// restart.
func TestIdempotencyKey(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	cmd := proto.Cmd{Command: `echo ran >>/workspace/effects; sleep 0.1; echo out; echo err >&2; exit 3`,
		IdempotencyKey: "key 1", Env: map[string]string{"A": "1", "B": "2"}}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards ids and first
	ids, first := map[string]int{}, 0
	for range 12 {
		wg.Go(func() {
			e, replayed, err := s.ExecOnce(ctx, cmd)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[e.ID()]++
			countIf(&first, !replayed)
		})
	}
	wg.Wait()
	if len(ids) != 1 || first != 1 {
		t.Fatalf("%d execs, %d of them new", len(ids), first)
	}
	check := func() {
		t.Helper()
		e, replayed, err := s.ExecOnce(ctx, cmd)
		if err != nil || !replayed || ids[e.ID()] == 0 {
			t.Fatalf("%v %v", replayed, err)
		}
		if r := waited(t, e).Result.Result; r == nil || r.Stdout != "out\n" || r.Stderr != "err\n" ||
			r.ReturnCode != 3 {
			t.Errorf("%+v", r)
		}
		other := cmd
		other.Command += " "
		_, _, err = s.ExecOnce(ctx, other)
		wantCode(t, err, proto.Conflict, "key 1")
		other = cmd
		other.Env = map[string]string{"A": "1", "B": "3"}
		_, err = s.Exec(ctx, other)
		wantCode(t, err, proto.Conflict, "key 1")
	}
	check()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	check()
	if s.Info().State != proto.StateStopped {
		t.Error("a replay started the container")
	}
	st.Reopen(t)
	var err error
	if s, err = st.Sessions.Get(sessiontest.Owner, s.ID()); err != nil {
		t.Fatal(err)
	}
	check()
	if out := sessiontest.Bash(t, s, "cat /workspace/effects").Stdout; out != "ran\n" {
		t.Errorf("it ran as often as %q", out)
	}
	for _, bad := range []string{strings.Repeat("k", 256), "a\nb", "é"} {
		_, err := s.Exec(ctx, proto.Cmd{Command: "true", IdempotencyKey: bad})
		wantCode(t, err, proto.InvalidArgument, "idempotency_key")
	}
	if _, replayed, err := s.ExecOnce(ctx, proto.Cmd{Command: "true", IdempotencyKey: "key 2"}); err != nil ||
		replayed {
		t.Errorf("another key: %v %v", replayed, err)
	}
}

func countIf(n *int, is bool) {
	if is {
		*n++
	}
}

// TestKeyOutlivesItsClient checks that a client that goes away and returns with its key finds its command running.
func TestKeyOutlivesItsClient(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	cmd := proto.Cmd{Command: `echo ran >>/workspace/effects; ` + untilGo + `cat /workspace/effects`,
		IdempotencyKey: "k"}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, cmd); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	st.Reopen(t)
	s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	touch(t, s, "/workspace/go")
	res, err := s.Run(context.Background(), cmd)
	if err != nil || res.Result.Result == nil || res.Result.Result.Stdout != "ran\n" {
		t.Errorf("%+v %+v %v", res.Exec.End, res.Result.Result, err)
	}
}

// TestKeyIsRememberedAmongManyCommands checks that a busy container forgets commands with a key later than others,
// and within bounds.
func TestKeyIsRememberedAmongManyCommands(t *testing.T) {
	clock := newClock()
	st := sessiontest.New(t, session.Config{Now: clock.Now})
	s := st.Create(t, proto.CreateContainer{})
	keyed := proto.Cmd{Command: "echo once >>/workspace/effects", IdempotencyKey: "k"}
	first := run(t, s, keyed).Exec.ID
	for range 110 {
		run(t, s, proto.Cmd{Argv: []string{"true"}})
	}
	if got := run(t, s, keyed).Exec.ID; got != first {
		t.Error("it ran again")
	}
	clock.Add(25 * time.Hour)
	s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	// old execs are forgotten after the client got the end
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if _, err = s.FindExec(first); err != nil {
			break
		}
		run(t, s, proto.Cmd{Argv: []string{"true"}})
	}
	wantCode(t, err, proto.NotFound, first)
	if got := run(t, s, keyed).Exec.ID; got == first {
		t.Error("it is remembered after its time")
	}
}

func dialer(st *sessiontest.Stack, id string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return st.Runtime.Dial(ctx, id) }
}

// TestToldEndSurvivesAKill checks that an end that a caller got is still recorded if the daemon is killed at that
// moment, although no step waited for the disk.
func TestToldEndSurvivesAKill(t *testing.T) {
	rt := &faultRuntime{Runtime: sessiontest.NewRuntime(t)}
	st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	told := waited(t, start(t, s, proto.Cmd{Command: "exit 3"})).Exec
	dir := killed(t, st)
	rt.kill()
	st.Close(t)
	next := sessiontest.Over(t, rt.Runtime, sessiontest.Images{}, session.Config{}) // to make a directory
	next.Close(t)
	next.Dir = dir
	next.Open(t)
	s, err := next.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.FindExec(told.ID)
	if err != nil {
		t.Fatal(err)
	}
	if end := x.Info().End; end == nil || end.Reason != proto.EndExit || end.ReturnCode != 3 {
		t.Errorf("it ended as %+v", end)
	}
}

// killed returns a copy of a stack's directory as a kill would leave it now.
func killed(t *testing.T, st *sessiontest.Stack) (dir string) {
	t.Helper()
	dir = t.TempDir()
	err := st.Ledger.Update(func(*ledger.Tx) error { // no other goroutine writes meanwhile
		if out, err := exec.Command("cp", "-a", st.Dir+"/.", dir).CombinedOutput(); err != nil {
			return errors.New(string(out))
		}
		return errFault // so nothing was written
	})
	if !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	return dir
}

// TestEndsOfAnOlderDaemon checks that the ends in an older daemon's log are moved to the ledger.
func TestEndsOfAnOlderDaemon(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	told, forgotten := waited(t, start(t, s, proto.Cmd{Command: "exit 3"})),
		waited(t, start(t, s, proto.Cmd{Command: "exit 4"}))
	st.Close(t)

	// As a kill leaves it: the ledger has the start of one exec and nothing of the other, and the log has both ends.
	var lines []byte
	edit(t, st, func(tx *ledger.Tx) error {
		for _, x := range []proto.Exec{told.Exec, forgotten.Exec} {
			key := s.ID() + "/" + x.ID
			var rec map[string]any
			if there, err := tx.Get("execs", key, &rec); err != nil || !there {
				return fmt.Errorf("%s: %v %v", key, there, err)
			}
			line, err := json.Marshal(map[string]any{"container": s.ID(), "record": rec})
			if err != nil {
				return err
			}
			lines = append(append(lines, line...), '\n')
			exec := rec["exec"].(map[string]any)
			exec["state"], exec["end"], exec["ended_at"] = "running", nil, nil
			if err := tx.Put("execs", key, rec); err != nil {
				return err
			}
		}
		return tx.Delete("execs", s.ID()+"/"+forgotten.Exec.ID)
	})
	torn := append(lines, `{"container":"cont`...) // the daemon was killed while it wrote a third line
	path := filepath.Join(st.Dir, "ends.log")
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}

	st.Open(t)
	s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.FindExec(told.Exec.ID)
	if err != nil {
		t.Fatal(err)
	}
	if end := x.Info().End; end == nil || end.Reason != proto.EndExit || end.ReturnCode != 3 {
		t.Errorf("it ended as %+v", end)
	}
	if _, err := s.FindExec(forgotten.Exec.ID); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("an exec that was forgotten is back: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is still there: %v", err)
	}
}

// edit changes the ledger of a closed stack.
func edit(t *testing.T, st *sessiontest.Stack, fn func(*ledger.Tx) error) {
	t.Helper()
	db, err := ledger.Open(filepath.Join(st.Dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
