package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// followed returns everything that an exec wrote to stdout, and how many bytes were reported missing to a follower.
func followed(t *testing.T, e *session.Exec) (text string, missing int64) {
	t.Helper()
	var b strings.Builder
	err := e.Follow(context.Background(), session.Cursor{}, func(ev proto.Event) error {
		if ev.Type == proto.EventGap {
			missing += ev.Until - ev.Offset
		}
		if ev.Type == proto.EventExit && ev.Result.Result.Result.Stdout != b.String() && missing == 0 {
			t.Errorf("the result has %d bytes, the follower %d", len(ev.Result.Result.Result.Stdout), b.Len())
		}
		b.WriteString(ev.Data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), missing
}

// TestEndedOutputGoesToDisk checks that output that does not fit in memory is on disk, complete, and that any number
// of readers can read it there at once.
func TestEndedOutputGoesToDisk(t *testing.T) {
	st := sessiontest.New(t, session.Config{OutputMemory: 8 << 20})
	s := st.Create(t, proto.CreateContainer{})
	const many, each = 10, 1_000_000
	var all []*session.Exec
	for i := range many {
		e := start(t, s, proto.Cmd{Command: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' %d", each, i)})
		waited(t, e)
		all = append(all, e)
	}
	check := func() {
		t.Helper()
		for i, e := range all {
			if got, missing := followed(t, e); got != strings.Repeat(fmt.Sprint(i), each) || missing > 0 {
				t.Errorf("exec %d: %d bytes, %d missing", i, len(got), missing)
			}
		}
	}
	check()
	check()
	files, err := os.ReadDir(filepath.Join(st.Dir, "output"))
	if err != nil || len(files) < 5 {
		t.Errorf("%d files of output, %v", len(files), err)
	}
	if err := st.Sessions.Delete(context.Background(), sessiontest.Owner, s.ID(), false); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(filepath.Join(st.Dir, "output")); len(files) > 0 {
		t.Errorf("%d files are left", len(files))
	}
}

// TestFirstFollowerMissesNothing checks that a command which its caller follows at once waits for that, however much it
// prints before.
func TestFirstFollowerMissesNothing(t *testing.T) {
	s := sessiontest.New(t, session.Config{}).Create(t, proto.CreateContainer{})
	const size = 3_000_000
	e := start(t, s, proto.Cmd{Command: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size), Detach: true,
		OnOutputLimit: proto.OutputWait, MaxOutputBytes: 4096, Followed: true})
	for end := time.Now().Add(time.Minute); e.Tail(0).Stdout < 5_000; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it has written %d bytes", e.Tail(0).Stdout)
		}
	}
	got := 0
	if err := e.Follow(t.Context(), session.Cursor{}, func(ev proto.Event) error {
		got += len(ev.Data)
		return nil
	}); err != nil || got != size {
		t.Errorf("%d bytes, %v", got, err)
	}
}

// TestFullSpoolIsTold checks that output that fits nowhere is reported missing, and that output fits again when other
// output is removed.
func TestFullSpoolIsTold(t *testing.T) {
	st := sessiontest.New(t, session.Config{OutputMemory: 4 << 20, OutputDisk: 3 << 20})
	s := st.Create(t, proto.CreateContainer{})
	var all []*session.Exec
	for range 12 {
		e := start(t, s, proto.Cmd{Command: "head -c 1000000 /dev/zero | tr '\\0' x"})
		waited(t, e)
		all = append(all, e)
	}
	lost := 0
	for _, e := range all {
		got, missing := followed(t, e)
		if int64(len(got))+missing != 1_000_000 {
			t.Errorf("%d bytes and %d missing", len(got), missing)
		}
		if missing > 0 {
			lost++
			if res := waited(t, e); !res.Exec.Truncated || !strings.Contains(res.Result.Result.Stdout, "left out") {
				t.Errorf("its result does not say so: %.200q", res.Result.Result.Stdout)
			}
		}
	}
	if lost == 0 || lost == len(all) {
		t.Errorf("%d of %d lost something", lost, len(all))
	}
}

// TestSpooledOutputOutlivesTheDaemon checks that output on disk is available after a restart, whichever daemon ran
// the command.
func TestSpooledOutputOutlivesTheDaemon(t *testing.T) {
	st := sessiontest.New(t, session.Config{OutputMemory: 1 << 20})
	s := st.Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: "head -c 500000 /dev/zero | tr '\\0' x", IdempotencyKey: "k"})
	waited(t, e)
	left := filepath.Join(st.Dir, "output", "tmp-left")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	st.Reopen(t)
	_, e = again(t, st, e)
	if got, missing := followed(t, e); len(got) != 500_000 || missing > 0 {
		t.Errorf("%d bytes, %d missing", len(got), missing)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a crash left of a file is still there")
	}
}

// TestSlowFollowersOfSpooledOutputAreBounded checks that followers of output on disk share what they read of it, and
// that the memory of all of them together is bounded, however many there are and however slowly they read.
func TestSlowFollowersOfSpooledOutputAreBounded(t *testing.T) {
	st := sessiontest.New(t, session.Config{OutputMemory: 3 << 20})
	s := st.Create(t, proto.CreateContainer{})
	var all []*session.Exec
	for range 6 {
		e := start(t, s, proto.Cmd{Command: "head -c 900000 /dev/zero | tr '\\0' x"})
		waited(t, e)
		for s.Users() > 0 { // memory for the next one is freed a moment after the answer
			time.Sleep(time.Millisecond)
		}
		all = append(all, e)
	}
	ctx, hurry := context.WithCancel(context.Background())
	defer hurry()
	slow := func(e *session.Exec) (entered bool, err <-chan error) {
		in, done := make(chan struct{}), make(chan error, 1)
		go func() {
			var once sync.Once
			done <- e.Follow(context.Background(), session.Cursor{}, func(proto.Event) error {
				once.Do(func() { close(in) })
				<-ctx.Done()
				return nil
			})
		}()
		select {
		case <-in:
			return true, done
		case err := <-done:
			done <- err
			return false, done
		}
	}
	var held []<-chan error
	refused := 0
	for _, e := range all[:4] { // the last ones are in memory anyway
		for range 20 {
			ok, end := slow(e)
			if ok {
				held = append(held, end)
				continue
			}
			refused++
			if err := <-end; proto.CodeOf(err) != proto.TooMany {
				t.Fatal(err)
			}
		}
	}
	if len(held)%20 != 0 || len(held) == 0 || refused == 0 {
		t.Errorf("%d follow, %d were refused", len(held), refused)
	}
	hurry()
	for _, end := range held {
		if err := <-end; err != nil {
			t.Error(err)
		}
	}
	for i, e := range all {
		if got, missing := followed(t, e); len(got) != 900_000 || missing > 0 {
			t.Errorf("exec %d afterwards: %d bytes, %d missing", i, len(got), missing)
		}
	}
}

// TestOutputWithoutAnEndGoes checks a crash between the output of an exec and the record of its end. The exec is then
// reported lost, without output, and the kept output is removed.
func TestOutputWithoutAnEndGoes(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: untilGo + "echo ended", Background: true})
	running := ledgerNow(t, st)
	touch(t, s, "/workspace/go")
	waited(t, e)
	kept := filepath.Join(st.Dir, "output", e.ID())
	if _, err := os.Stat(kept); err != nil {
		t.Fatal(err)
	}
	st.Runtime.(*sessiontest.Runtime).Kill(s.ID())
	rollBack(t, st, running)
	_, e = again(t, st, e)
	if end := waited(t, e).Exec.End; end.Reason != proto.EndLost {
		t.Errorf("it ended as %+v", end)
	}
	if _, err := os.Stat(kept); err == nil {
		t.Error("output that no record tells of is still there")
	}
}

// TestManyAtOnceAreAllRemembered checks that results that no client has fetched are kept although many commands end
// later.
func TestManyAtOnceAreAllRemembered(t *testing.T) {
	st := sessiontest.New(t, session.Config{MaxExecs: 200})
	s := st.Create(t, proto.CreateContainer{})
	var all []*session.Exec
	for range 130 {
		all = append(all, start(t, s, proto.Cmd{Argv: []string{"/bin/true"}, Background: true}))
	}
	settled := func() {
		for s.Users() > 0 { // until the last of them has ended
			time.Sleep(time.Millisecond)
		}
	}
	settled()
	for i, e := range all {
		x, err := s.FindExec(e.ID())
		if err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
		waited(t, x)
	}
	sessiontest.Bash(t, s, "true")
	settled() // excess execs are forgotten after the client got the end
	if _, err := s.FindExec(all[0].ID()); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("what was told is remembered for ever: %v", err)
	}
}

// idle waits for the work that follows the answers of a session's commands.
func idle(s *session.Session) {
	for s.Users() > 0 {
		time.Sleep(time.Millisecond)
	}
}

func deleted(t *testing.T, st *sessiontest.Stack, s *session.Session) {
	t.Helper()
	if err := st.Sessions.Delete(context.Background(), sessiontest.Owner, s.ID(), false); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsForgottenTakesNoMemory checks that output memory is freed with a forgotten session, and with a command
// that many later commands displaced.
func TestWhatIsForgottenTakesNoMemory(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	used := func() int64 { return s.OutputBudget().Used() }
	for range 3 {
		other := st.Create(t, proto.CreateContainer{})
		sessiontest.Bash(t, other, "head -c 500000 /dev/zero")
		if used() < 500_000 {
			t.Fatalf("500000 bytes of output count as %d", used())
		}
		deleted(t, st, other)
		if n := used(); n != 0 {
			t.Errorf("%d bytes of output are left of a container that was deleted", n)
		}
	}
	for range 130 {
		sessiontest.Bash(t, s, "head -c 1000 /dev/zero")
	}
	idle(s)
	if n := used(); n < 90_000 || n > 110_000 {
		t.Errorf("the last 100 commands of 1000 bytes each take %d", n)
	}
	if _, err := s.Exec(context.Background(), proto.Cmd{Command: "true", Files: []string{"file_none"}}); err == nil {
		t.Error("a command with a file that does not exist was started")
	}
	deleted(t, st, s)
	if n := used(); n != 0 {
		t.Errorf("%d bytes are left of all", n)
	}
}

// TestOutputIsMovedToDiskOnce runs many commands that end at once while memory is short. All output must move to disk
// exactly once, and nothing may be left when the commands are forgotten.
func TestOutputIsMovedToDiskOnce(t *testing.T) {
	st := sessiontest.New(t, session.Config{OutputMemory: 16 << 20})
	const sessions, rounds, each = 4, 8, 400_000
	var wg sync.WaitGroup
	var all [sessions]*session.Session
	var execs [2 * sessions][]*session.Exec
	for i := range all {
		all[i] = st.Create(t, proto.CreateContainer{})
	}
	for i := range execs {
		wg.Go(func() {
			for range rounds {
				e, err := all[i%sessions].Exec(context.Background(),
					proto.Cmd{Command: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' %d", each, i)})
				if err == nil {
					_, err = e.Finish(context.Background())
				}
				if err != nil {
					t.Error(err)
					return
				}
				execs[i] = append(execs[i], e)
			}
		})
	}
	wg.Wait()
	for i, list := range execs {
		for _, e := range list {
			if got, missing := followed(t, e); got != strings.Repeat(fmt.Sprint(i), each) || missing > 0 {
				t.Errorf("a command of %d: %d bytes, %d missing", i, len(got), missing)
			}
		}
	}
	if st.Sessions.Spooled() == 0 {
		t.Error("nothing is on disk")
	}
	for _, s := range all {
		deleted(t, st, s)
	}
	if n, used := st.Sessions.Spooled(), all[0].OutputBudget().Used(); n != 0 || used != 0 {
		t.Errorf("%d bytes of files and %d of memory are counted when all is deleted", n, used)
	}
	if files, err := os.ReadDir(filepath.Join(st.Dir, "output")); err != nil || len(files) > 0 {
		t.Errorf("%d files are left, %v", len(files), err)
	}
}

// TestForgottenOutputDoesNotComeBack checks a trim that found an exec just before the exec's session was deleted: the
// trim must not write the output to disk again.
func TestForgottenOutputDoesNotComeBack(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e := start(t, s, proto.Cmd{Command: "echo here"})
	waited(t, e)
	deleted(t, st, s)
	e.MoveOut()
	if files, err := os.ReadDir(filepath.Join(st.Dir, "output")); err != nil || len(files) > 0 ||
		st.Sessions.Spooled() != 0 {
		t.Errorf("%d files are left and %d bytes counted, %v", len(files), st.Sessions.Spooled(), err)
	}
	if got, missing := followed(t, e); got != "here\n" || missing > 0 {
		t.Errorf("who has the command still reads %q, %d missing", got, missing)
	}
}
