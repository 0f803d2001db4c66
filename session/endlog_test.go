package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
	"berth/state/ledger"
)

// What a caller was told of a command's end is so after the daemon was killed at that moment, although nothing waited
// for the disk.
func TestToldEndSurvivesAKill(t *testing.T) {
	rt := &faultRuntime{Runtime: sessiontest.NewRuntime(t)}
	st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	told := waited(t, start(t, s, proto.Cmd{Command: "exit 3"})).Exec
	dir := killed(t, st)
	rt.kill()
	st.Close(t)
	next := sessiontest.Over(t, rt.Runtime, sessiontest.Images{}, session.Config{}) // which makes a directory
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

// killed is a copy of a stack's directory as a kill would leave it now.
func killed(t *testing.T, st *sessiontest.Stack) (dir string) {
	t.Helper()
	dir = t.TempDir()
	err := st.Ledger.Update(func(*ledger.Tx) error { // nobody writes meanwhile
		if out, err := exec.Command("cp", "-a", st.Dir+"/.", dir).CombinedOutput(); err != nil {
			return errors.New(string(out))
		}
		return errFault // and nothing was written
	})
	if !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	return dir
}

// What an older daemon wrote down beside the ledger is taken over.
func TestEndsOfAnOlderDaemon(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	told, forgotten := waited(t, start(t, s, proto.Cmd{Command: "exit 3"})),
		waited(t, start(t, s, proto.Cmd{Command: "exit 4"}))
	st.Close(t)

	// As a kill leaves it: the ledger has the start of the one, nothing of the other, and the log has both ends.
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
	torn := append(lines, `{"container":"cont`...) // the daemon was killed in the middle of a third
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

// edit changes the ledger of a stack that is closed.
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
