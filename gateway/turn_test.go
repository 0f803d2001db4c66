package gateway

import (
	"context"
	"encoding/json"
	"testing"
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
