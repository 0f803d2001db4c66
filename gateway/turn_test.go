package gateway

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"berth/proto"
)

// WriteTurn writes the turn of a request to the ledger, as if the turn had created the container. written returns the
// ID of the turn in the ledger.
func (g *Gateway) WriteTurn(ctx context.Context, r Request, c Container) (id string, written func() string) {
	t, err := g.enterTurn(ctx, r)
	if err != nil {
		panic(err)
	}
	t.request = r
	t.container.c, t.container.created = c, c != nil
	t.writeRecord()
	return t.id, func() string {
		if rec := g.readRecord(t.key); rec != nil {
			return rec.ID
		}
		return ""
	}
}

// WaitDeletes waits for running deletions of containers that no client knows.
func (g *Gateway) WaitDeletes() { g.deletes.Wait() }

// A turn that is kept for retries keeps its request only as long as it needs it.
func TestWhatIsKeptOfATurn(t *testing.T) {
	type conversation struct{ Conversation }
	content := []json.RawMessage{make([]byte, 10)}
	open := &turn{request: Request{Size: 1000}, conv: conversation{}, answer: Answer{Content: content}}
	if n := open.shrink(); n < 1010 || open.conv == nil {
		t.Errorf("a turn that is to go on takes %d bytes: %+v", n, open)
	}
	over := &turn{request: Request{Size: 1000}, conv: conversation{}, answer: Answer{Content: content,
		Final: json.RawMessage(`{"content":"x"}`)}}
	if n := over.shrink(); n < 10 || n > 1000 || over.conv != nil {
		t.Errorf("a turn that is over takes %d bytes: %+v", n, over)
	}
}

// TestWhoMayContinueATurn checks which requests get the turn of another one. An idempotency key counts for its owner
// alone. Without a key, only a later attempt of the same client gets a turn, and only one that its client has left
// without an answer.
func TestWhoMayContinueATurn(t *testing.T) {
	g := &Gateway{known: map[string][]*turn{}}
	enter := func(ctx context.Context, r Request) *turn {
		t.Helper()
		got, err := g.enterTurn(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	here := t.Context()
	body := func(b byte) [32]byte { return [32]byte{b} }
	keyed := Request{Owner: "ann", RetryKey: "k", Key: body(1)}
	first := enter(here, keyed)
	if enter(here, keyed) != first {
		t.Error("the same key and body do not find their turn")
	}
	if enter(here, Request{Owner: "bob", RetryKey: "k", Key: body(2)}) == first {
		t.Error("another owner's key finds the turn")
	}
	if _, err := g.enterTurn(here, Request{Owner: "ann", RetryKey: "k", Key: body(3)}); proto.CodeOf(err) !=
		proto.Conflict {
		t.Errorf("the same key with another body: %v", err)
	}

	plain := func(client byte, attempt int) Request {
		return Request{Owner: "ann", Key: body(4), Client: body(client), Attempt: attempt}
	}
	ctx, leave := context.WithCancel(here)
	defer leave()
	left := enter(ctx, plain(1, 0))
	if enter(here, plain(1, 1)) == left {
		t.Error("a turn that its client waits for is given to another request")
	}
	leave()
	if enter(here, plain(2, 2)) == left {
		t.Error("a turn is given to another client")
	}
	if enter(here, plain(1, 0)) == left {
		t.Error("a turn is given to a request that is no later attempt")
	}
	left.over = true
	if enter(here, plain(1, 3)) == left {
		t.Error("an answered turn is given to another request")
	}
	left.over = false
	if enter(here, plain(1, 3)) != left {
		t.Error("a later attempt of the client does not get the turn that it left")
	}
}

// A repeated request may come before the end of its earlier attempt is noticed. It takes over the turn of that attempt.
// If the earlier client stays, the request has a turn of its own.
func TestRetryThatOvertakes(t *testing.T) {
	for _, stays := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := &Gateway{known: map[string][]*turn{}}
			enter := func(ctx context.Context, attempt int) *turn {
				entered, err := g.enterTurn(ctx, Request{Attempt: attempt})
				if err != nil {
					t.Error(err)
				}
				return entered
			}
			first, leave := context.WithCancel(t.Context())
			defer leave()
			other := enter(t.Context(), 0) // an equal question
			was := enter(first, 0)
			if was == other {
				t.Fatal("two questions have one turn")
			}
			began, now := time.Now(), make(chan *turn)
			go func() { now <- enter(t.Context(), 1) }()
			synctest.Wait()
			if !stays {
				leave()
			}
			got, took := <-now, time.Since(began)
			if want := stays; (got != was) != want || (took == noticeWait) != want || got == other {
				t.Errorf("the first client stays: %v; the same turn: %v, after %v", stays, got == was, took)
			}
		})
	}
}

// A request whose client leaves while it waits for an earlier attempt has no turn.
func TestRetryThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{known: map[string][]*turn{}}
		if _, err := g.enterTurn(t.Context(), Request{}); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithTimeout(t.Context(), noticeWait/2)
		defer leave()
		if got, err := g.enterTurn(ctx, Request{Attempt: 1}); err == nil || got != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}
