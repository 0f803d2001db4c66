package gateway

import (
	"encoding/json"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
	"berth/state/ledger"
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

// A turn stays written down in the place of one that an earlier daemon left, also while the container of that is
// being deleted.
func TestTurnInThePlaceOfAnEarlierDaemons(t *testing.T) {
	for name, meanwhile := range map[string]func(*Gateway){"at once": func(*Gateway) {}, "forgotten": func(g *Gateway) {
		g.Forget(0)
	}} {
		st := sessiontest.New(t, session.Config{})
		made := st.Create(t, proto.CreateContainer{})
		q := &query{Request: Request{Owner: sessiontest.Owner, Body: []byte("{}")}}
		write := func(g *Gateway, b box) *turn {
			turn := g.attempts.enter(q).t
			turn.q, turn.box = q, b
			turn.note("")
			return turn
		}
		write(New(Config{Sessions: st.Sessions, Ledger: st.Ledger}), box{s: made, made: true})
		g := New(Config{Sessions: st.Sessions, Ledger: st.Ledger})
		meanwhile(g)
		now := write(g, box{})
		g.attempts.discards.Wait()
		// with what was to be written later
		if err := st.Ledger.Update(func(*ledger.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if rec := g.recorded(now.key); rec == nil || rec.ID != now.id {
			t.Errorf("%s: %+v is written down", name, rec)
		}
		if _, err := st.Sessions.Get(sessiontest.Owner, made.ID()); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("%s: the container of the earlier one is there: %v", name, err)
		}
	}
}
