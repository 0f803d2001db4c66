package attack

import (
	"context"
	"io"
	"net"
	"time"

	"berth/proto"
)

// besideSlow runs the probe slow, which holds connections open, in one container. It checks the effect on others: on
// the probe quick in another container, and on requests to the API.
func (t *Target) besideSlow(ctx context.Context, req proto.CreateContainer, slow, quick string) error {
	attacker, err := t.Container(ctx, req)
	if err != nil {
		return err
	}
	neighbour, err := t.Container(ctx, req)
	if err != nil {
		return err
	}
	if err := t.PutProbe(ctx, attacker.ID); err != nil {
		return err
	}
	if _, err := t.Launch(ctx, attacker.ID, proto.Cmd{Argv: []string{probePath, ProbeCommand, slow},
		Background: true}); err != nil {
		return err
	}
	if err := t.Probe(ctx, neighbour.ID, "", quick, nil); err != nil {
		return Breached("a neighbour of %s: %v", slow, err)
	}
	began := time.Now()
	if _, err := t.Info(ctx); err != nil {
		return err
	}
	if took := time.Since(began); took > 2*time.Second {
		return Breached("the daemon took %s to answer", took)
	}
	return nil
}

// holdOpen opens n connections, sends one of the texts on each, and keeps them for a minute or until the probe is
// killed.
func holdOpen(addr string, n int, says ...string) int {
	var open []net.Conn
	for i := range n {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			continue // a full queue is the container's own problem
		}
		_, _ = io.WriteString(c, says[i%len(says)])
		open = append(open, c)
	}
	time.Sleep(time.Minute)
	return len(open)
}
