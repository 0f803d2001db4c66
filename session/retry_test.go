package session_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/state/vault"
	"berth/test/sessiontest"
)

// digests returns the digests of requests with idempotency keys in the ledger.
func digests(t *testing.T, st *sessiontest.Stack) (list []string) {
	t.Helper()
	type keyed struct {
		Retry struct{ Hash string } `json:"retry"`
	}
	err := st.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, "execs", "", func(_ string, r keyed) { list = append(list, r.Retry.Hash) })
	})
	if err != nil || len(list) != 1 || list[0] == "" {
		t.Fatalf("%v %q", err, list)
	}
	return list
}

// TestRequestsCannotBeGuessedFromTheLedger checks that a reader of the ledger cannot try passwords against its
// digests of requests. The same request has another digest in each ledger, and without the vault's key no request is
// recognised.
func TestRequestsCannotBeGuessedFromTheLedger(t *testing.T) {
	ctx := context.Background()
	cmd := proto.Cmd{Command: "true", Env: map[string]string{"PIN": "1234"}, Secrets: map[string]string{"S": "0000"},
		IdempotencyKey: "k"}
	var seen []string
	for range 2 {
		st := sessiontest.New(t, session.Config{})
		s := st.Create(t, proto.CreateContainer{})
		e := start(t, s, cmd)
		waited(t, e)
		seen = append(seen, digests(t, st)...)
		st.Reopen(t)
		s, _ = again(t, st, e)
		if x, replayed, err := s.ExecOnce(ctx, cmd); err != nil || !replayed || x.ID() != e.ID() {
			t.Errorf("after a restart: %v %v", replayed, err)
		}
		other := cmd
		other.Secrets = map[string]string{"S": "0001"}
		if _, _, err := s.ExecOnce(ctx, other); proto.CodeOf(err) != proto.Conflict {
			t.Errorf("with another secret: %v", err)
		}
	}
	if seen[0] == seen[1] {
		t.Error("the digest of a request is the same for everybody")
	}
}

// TestRequestsAreKnownUnderANewKey checks that requests are recognised after the vault's key was replaced and the old
// one is gone, with and without a running daemon.
func TestRequestsAreKnownUnderANewKey(t *testing.T) {
	cmd := proto.Cmd{Command: "true", IdempotencyKey: "k"}
	st := sessiontest.New(t, session.Config{})
	e := start(t, st.Create(t, proto.CreateContainer{}), cmd)
	waited(t, e)
	change := func(db *ledger.DB, sweep vault.Sweeper) {
		t.Helper()
		v, err := vault.Open(filepath.Join(st.Dir, "secret-key"), db)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := v.Rotate(sweep); err != nil || done.Closed != 0 || done.Resealed == 0 {
			t.Fatalf("%+v %v", done, err)
		}
		if done, err := v.Forget(sweep); err != nil || done.Keys != 1 {
			t.Fatalf("%+v %v", done, err)
		}
	}
	known := func(how string) {
		t.Helper()
		var s *session.Session
		s, e = again(t, st, e)
		if x, replayed, err := s.ExecOnce(t.Context(), cmd); err != nil || !replayed || x.ID() != e.ID() {
			t.Errorf("%s: %v %v", how, replayed, err)
		}
	}
	change(st.Ledger, st.Sessions.Reseal)
	known("in the daemon that ran")
	st.Reopen(t)
	known("in the next one")
	st.Close(t)
	db, err := ledger.Open(filepath.Join(st.Dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	change(db, func(reseal session.Resealer) (int, int, error) { return session.Reseal(db, reseal) })
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	st.Open(t)
	known("after a change without a daemon")
}

// TestKeysOfCommandsThatAwaitTheirClient checks that a caller's key runs a command once also with reconnect_seconds,
// however many others end after it. Only a key that a berth client made for one request is forgotten, a minute later.
func TestKeysOfCommandsThatAwaitTheirClient(t *testing.T) {
	ctx := context.Background()
	now := newClock()
	st := sessiontest.New(t, session.Config{Now: now.Now})
	s := st.Create(t, proto.CreateContainer{})
	keys := []string{"mine", "once_x"}
	keyed := func(key string) (replayed bool) {
		t.Helper()
		e, replayed, err := s.ExecOnce(ctx, proto.Cmd{Command: "true", IdempotencyKey: key, ReconnectSeconds: 1})
		if err != nil {
			t.Fatal(err)
		}
		waited(t, e)
		return replayed
	}
	for _, key := range keys {
		keyed(key)
	}
	for _, c := range []struct {
		later time.Duration
		known []bool
	}{{50 * time.Second, []bool{true, true}}, {11 * time.Second, []bool{true, false}}} {
		now.Add(c.later)
		for range 105 {
			run(t, s, proto.Cmd{Argv: []string{"true"}})
		}
		for i, key := range keys {
			if replayed := keyed(key); replayed != c.known[i] {
				t.Errorf("%s, %v later: known: %v", key, c.later, replayed)
			}
		}
	}
}
