// Package loopback serves ports of a container's loopback from the daemon.
//
// The guest listens on the container's loopback. It passes each connection to the daemon, over a connection that the
// daemon has opened to the guest in advance. A container without services has no listener, connection or goroutine for
// this.
//
// Out of scope: which ports there are and who answers them. Package session decides that; it is the only caller.
package loopback

import (
	"context"
	"sync"
	"time"

	"berth/egress"
)

// A Service answers connections to one port of a container's loopback. egress.Gate is one.
type Service interface {
	// Enter waits for a slot among the container's connections. The caller calls leave afterwards.
	Enter(ctx context.Context) (leave func(), err error)
	// Serve answers one connection and closes it. It returns when ctx ends, at the latest.
	Serve(ctx context.Context, c egress.Conn)
}

// An OutboundService answers what programs send beyond loopback, and closes o. It returns when ctx ends. egress.Gate is
// one.
type OutboundService interface {
	ServeOutbound(ctx context.Context, o egress.Outbound)
}

// outbound is the place of the outbound service among the served ports.
const outbound = 0

// A Listener waits in the guest for one connection.
type Listener interface {
	Await(ctx context.Context) (egress.Conn, error) // closes the listener if it fails
	Close()
}

// Listen opens a listener in the guest of one generation, on a port of the container's loopback.
type Listen func(ctx context.Context, port uint16) (Listener, error)

// readyListeners is how many listeners wait in the guest for each service. With only one, two connections in quick
// succession would make the second wait.
const readyListeners = 2

// Delay after a failed listener: the guest may be gone, which other code detects, or may lack descriptors.
const (
	firstDelay   = 100 * time.Millisecond
	longestDelay = 5 * time.Second
)

// Ports are the served ports of one container. They are safe for concurrent use, except that calls of Serve must not
// overlap.
type Ports struct {
	life  context.Context
	spawn func(fn func()) error

	mu     sync.Mutex                    // guards served
	served map[uint16]context.CancelFunc // by port
}

// NewPorts returns ports that are served until life ends, on goroutines that spawn starts.
func NewPorts(life context.Context, spawn func(fn func()) error) *Ports {
	return &Ports{life: life, spawn: spawn, served: map[uint16]context.CancelFunc{}}
}

// Serve starts to serve one port, unless there is no service or the port is served. When it returns, the guest
// listens.
func (p *Ports) Serve(ctx context.Context, listen Listen, port uint16, service Service) error {
	if service == nil || p.Served(port) {
		return nil
	}
	first, err := listen(ctx, port)
	if err != nil {
		return err
	}
	serving, cancel := context.WithCancel(p.life)
	p.mu.Lock()
	p.served[port] = cancel
	p.mu.Unlock()
	err = p.spawn(func() {
		var wg sync.WaitGroup
		for range readyListeners {
			line := first
			wg.Go(func() { acceptConnections(serving, listen, port, service, line) })
			first = nil
		}
		wg.Wait()
	})
	if err != nil {
		cancel()
		first.Close()
	}
	return err
}

// ServeOutbound has a service answer what programs send beyond loopback, unless it does. open opens the sockets. When
// it fails, there is no such service until the ports are closed.
func (p *Ports) ServeOutbound(open func() (egress.Outbound, error), service OutboundService) error {
	if service == nil || p.Served(outbound) {
		return nil
	}
	serving, cancel := context.WithCancel(p.life)
	p.mu.Lock()
	p.served[outbound] = cancel
	p.mu.Unlock()
	o, err := open()
	if err != nil {
		return err
	}
	if err = p.spawn(func() { service.ServeOutbound(serving, o) }); err != nil {
		cancel()
		_ = o.Close()
	}
	return err
}

// Served reports whether a port is served.
func (p *Ports) Served(port uint16) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served[port] != nil
}

// Close closes the served ports and their connections.
func (p *Ports) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.served {
		cancel()
	}
	clear(p.served)
}

// acceptConnections accepts connections until ctx ends and has the service answer each. line is the first listener,
// if one exists already.
func acceptConnections(ctx context.Context, listen Listen, port uint16, service Service, line Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for delay := firstDelay; ; line = nil {
		leave, err := service.Enter(ctx) // before the accept: a connection without a slot waits in the container
		if err != nil {
			if line != nil {
				line.Close()
			}
			return
		}
		if line == nil {
			line, err = listen(ctx, port)
		}
		var conn egress.Conn
		if err == nil {
			conn, err = line.Await(ctx)
		}
		if err != nil {
			leave()
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
				delay = min(2*delay, longestDelay)
				continue
			}
		}
		delay = firstDelay
		wg.Go(func() {
			defer leave()
			service.Serve(ctx, conn)
		})
	}
}
