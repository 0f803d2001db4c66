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

// A turn that equals one of an earlier daemon keeps its record, even while the container of the old turn is being
// deleted. The new turn does not delete that container: the client of the old turn may still come for its answer.
func TestTurnBesideAnEarlierDaemons(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(*gateway.Gateway)
		gone          bool
	}{
		"remembered":       {func(*gateway.Gateway) {}, func(*gateway.Gateway) {}, false},
		"forgotten before": {func(g *gateway.Gateway) { g.Forget(0) }, func(*gateway.Gateway) {}, true},
		"forgotten after":  {func(*gateway.Gateway) {}, func(g *gateway.Gateway) { g.Forget(0) }, true},
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
		open().WriteTurn(t.Context(), r, found)
		g := open()
		c.before(g)
		id, written := g.WriteTurn(t.Context(), r, nil)
		c.after(g)
		g.WaitDeletes()
		// flushes asynchronous writes
		if err := st.Ledger.Update(func(*ledger.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := written(); got != id {
			t.Errorf("%s: turn %q is written down, want %q", name, got, id)
		}
		_, err = st.Sessions.Get(sessiontest.Owner, made.ID())
		if gone := proto.CodeOf(err) == proto.NotFound; gone != c.gone {
			t.Errorf("%s: the container of the earlier one: %v", name, err)
		}
	}
}
