package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"berth/gateway"
	"berth/gateway/containers"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

// restored is a conversation that only delivers what an earlier daemon has stored.
type restored struct {
	gateway.Conversation
	answer *gateway.Answer
	sent   string
	end    func() error // nil: nothing
}

func (c *restored) Open(gateway.Opening) ([]gateway.Call, error) { return nil, nil }

func (c *restored) Ask(context.Context) (gateway.Round, error) {
	return gateway.Round{}, proto.Errorf(proto.Unavailable, "", "", "the model was asked")
}

func (c *restored) End() error {
	if c.end == nil {
		return nil
	}
	return c.end()
}

func (c *restored) Deliver() error {
	c.sent = string(c.answer.Final)
	for _, b := range c.answer.Content {
		c.sent += string(b)
	}
	return nil
}

// Records of version 0.1.0 have the hash of the request as their key. A request with the same idempotency key, or a
// repeated one without a key, continues the turn. The latter does not get an answer that its client may have had.
func TestRecordsOfVersion010(t *testing.T) {
	const open = `{"id":"old","owner":"` + sessiontest.Owner + `","container":"%","head":{},"content":["part"],"begun":"x","at":"2126-11-27T00:00:00Z"}`
	const over = `{"id":"old","owner":"` + sessiontest.Owner + `","container":"%","heard":true,"head":{},"final":"all","at":"2126-11-27T00:00:00Z"}`
	for name, c := range map[string]struct {
		record, key string
		attempt     int
		sent        string
	}{
		"with a key":             {open, "k", 0, `"part"`},
		"with a key, over":       {over, "k", 0, `"all"`},
		"repeated":               {open, "", 1, `"part"`},
		"repeated, over":         {over, "", 1, ""},
		"not repeated":           {open, "", 0, ""},
		"not repeated, but over": {over, "", 0, ""},
	} {
		st := sessiontest.New(t, session.Config{})
		box := st.Create(t, proto.CreateContainer{})
		host := containers.New(containers.Config{Sessions: st.Sessions})
		sum := sha256.Sum256([]byte(sessiontest.Owner + "\x00" + c.key + "\x00body"))
		var rec json.RawMessage = []byte(strings.Replace(c.record, "%", box.ID(), 1))
		if err := st.Ledger.Update(func(tx *ledger.Tx) error {
			return tx.Put("gateway_turns", hex.EncodeToString(sum[:]), rec)
		}); err != nil {
			t.Fatal(err)
		}
		g := gateway.New(gateway.Config{Containers: host, Ledger: st.Ledger})
		r := gateway.Request{Owner: sessiontest.Owner, Key: sum, RetryKey: c.key, Attempt: c.attempt,
			Client: sha256.Sum256([]byte("client"))}
		var conv *restored
		_ = g.Answer(t.Context(), r, func(_ gateway.Conversation, a *gateway.Answer) (gateway.Conversation, func()) {
			conv = &restored{answer: a}
			return conv, func() {}
		}) // fails where the model is asked
		if conv.sent != c.sent {
			t.Errorf("%s: %q was sent, want %q", name, conv.sent, c.sent)
		}
	}
}

// If the daemon is killed when a client has its answer, the next one does not give that answer to an equal request.
// It does if the client left before the end.
func TestDaemonIsKilledAsAnAnswerEnds(t *testing.T) {
	key := sha256.Sum256([]byte("request"))
	rec := map[string]any{"id": "old", "request": hex.EncodeToString(key[:]), "owner": sessiontest.Owner,
		"head": json.RawMessage("{}"), "final": "all", "at": "2126-11-27T00:00:00Z"}
	for left, sent := range map[bool]string{false: "", true: `"all"`} {
		st := sessiontest.New(t, session.Config{})
		cfg := gateway.Config{Containers: containers.New(containers.Config{Sessions: st.Sessions}), Ledger: st.Ledger}
		put := func(rec any) {
			if err := st.Ledger.Update(func(tx *ledger.Tx) error {
				return tx.Put("gateway_turns", "old", rec)
			}); err != nil {
				t.Fatal(err)
			}
		}
		put(rec)
		var killed json.RawMessage // what the ledger had of the turn when the answer ended
		r := gateway.Request{Owner: sessiontest.Owner, Key: key, Attempt: 1}
		_ = gateway.New(cfg).Answer(t.Context(), r, func(_ gateway.Conversation, a *gateway.Answer) (
			gateway.Conversation, func()) {
			return &restored{answer: a, end: func() error {
				if left {
					return gateway.ErrClientGone
				}
				return st.Ledger.View(func(tx *ledger.Tx) error {
					_, err := tx.Get("gateway_turns", "old", &killed)
					return err
				})
			}}, func() {}
		})
		if killed != nil {
			put(killed)
		}
		r.Attempt++
		var conv *restored
		_ = gateway.New(cfg).Answer(t.Context(), r, func(_ gateway.Conversation, a *gateway.Answer) (
			gateway.Conversation, func()) {
			conv = &restored{answer: a}
			return conv, func() {}
		})
		if conv.sent != sent {
			t.Errorf("the client left before the end: %t; %q was sent", left, conv.sent)
		}
	}
}
