package session_test

import (
	"context"
	"testing"

	"berth/ledger"
	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// digests are what the ledger has of requests with idempotency keys.
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

// Whoever reads a ledger cannot try passwords against what it has of a request: the same one looks different in each, and without the
// vault's key none is known again.
func TestRequestsCannotBeGuessedFromTheLedger(t *testing.T) {
	ctx := context.Background()
	cmd := proto.Cmd{Command: "true", Env: map[string]string{"PIN": "1234"}, Secrets: map[string]string{"S": "0000"}, IdempotencyKey: "k"}
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
