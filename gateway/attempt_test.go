package gateway

import (
	"encoding/json"
	"testing"
)

// A turn that is kept for those who send it again keeps its request only as long as it needs that.
func TestWhatIsKeptOfATurn(t *testing.T) {
	q := &query{Request: Request{Body: make([]byte, 1000)}}
	open := &turn{q: q, h: &history{}, content: []json.RawMessage{make([]byte, 10)}}
	if n := open.rest(); n < 1010 || open.q == nil || open.h == nil {
		t.Errorf("a turn that is to go on takes %d bytes: %+v", n, open)
	}
	over := &turn{q: q, h: &history{}, content: open.content, final: object{}.with("content", "x")}
	if n := over.rest(); n < 10 || n > 1000 || over.q != nil || over.h != nil {
		t.Errorf("a turn that is over takes %d bytes: %+v", n, over)
	}
}
