package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/ledger"
	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// What a caller was told of a command's end is so after a crash, although the ledger had not got it yet.
func TestToldEndSurvivesACrash(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	told, forgotten := waited(t, start(t, s, proto.Cmd{Command: "exit 3"})), waited(t, start(t, s, proto.Cmd{Command: "exit 4"}))
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
	if fi, err := os.Stat(path); err != nil || fi.Size() != 0 {
		t.Errorf("the log was not emptied: %v %v", fi, err)
	}
}

// The log is emptied as it grows.
func TestEndLogStaysSmall(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	long := "true " + strings.Repeat("x", 100_000)
	for range 12 {
		if _, err := s.Run(context.Background(), proto.Cmd{Command: long}); err != nil {
			t.Fatal(err)
		}
	}
	st.Close(t)
	if fi, err := os.Stat(filepath.Join(st.Dir, "ends.log")); err != nil || fi.Size() > 600<<10 {
		t.Errorf("%v %v", fi, err)
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
