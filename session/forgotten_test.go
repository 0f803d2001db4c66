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
	"berth/session/sessiontest"
)

// idle waits until what ends behind the answers of a session's commands is done.
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

// The memory of output is given back with whatever is forgotten: a session, and a command that many came after.
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

// Many commands end at once and memory is short each time: all of their output is moved to disk by somebody, once,
// and nothing of it is left when they are forgotten.
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

// Whoever trims may have taken an exec for one of a session's just before that was deleted: nothing of it comes back.
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
