package gateway_test

import (
	"testing"

	"berth/gateway"
	"berth/gateway/containers"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

// A turn that replaces one of an earlier daemon keeps its record, even while the container of the old turn is being
// deleted.
func TestTurnInThePlaceOfAnEarlierDaemons(t *testing.T) {
	for name, meanwhile := range map[string]func(*gateway.Gateway){
		"at once":   func(*gateway.Gateway) {},
		"forgotten": func(g *gateway.Gateway) { g.Forget(0) },
	} {
		st := sessiontest.New(t, session.Config{})
		made := st.Create(t, proto.CreateContainer{})
		host := containers.New(containers.Config{Sessions: st.Sessions})
		found, err := host.Find(sessiontest.Owner, made.ID())
		if err != nil {
			t.Fatal(err)
		}
		open := func() *gateway.Gateway {
			return gateway.New(gateway.Config{Containers: host, Ledger: st.Ledger})
		}
		r := gateway.Request{Owner: sessiontest.Owner}
		open().WriteTurn(r, found)
		g := open()
		meanwhile(g)
		id, written := g.WriteTurn(r, nil)
		g.WaitDeletes()
		// flushes asynchronous writes
		if err := st.Ledger.Update(func(*ledger.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := written(); got != id {
			t.Errorf("%s: turn %q is written down, want %q", name, got, id)
		}
		if _, err := st.Sessions.Get(sessiontest.Owner, made.ID()); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("%s: the container of the earlier one is there: %v", name, err)
		}
	}
}
