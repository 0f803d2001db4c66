// Package public makes ports of containers public and private again, and lets strangers in: requests without any
// credential. When a port is withdrawn, the requests of strangers to it end.
//
// In scope: changes of the stored set one after the other, and the strangers' requests that run now. Out of scope: the
// daemon's bound and the record (session), the requests themselves (api/ports), credentials (api/ports, api/e2b).
package public

import (
	"context"
	"slices"
	"sync"

	"berth/proto"
	"berth/session"
	"berth/session/inbound"
	"berth/state/keylock"
)

// All stands for all ports where a port is expected.
const All = "all"

// maxStrangers bounds the strangers' requests to one container that run at a time. It is below the bound of its
// connections, so that its owner can still connect.
const maxStrangers = 1000

// ErrWithdrawn ends strangers' requests to a port that is no longer public.
var ErrWithdrawn = proto.Errorf(proto.PermissionDenied, "", "port", "the port is no longer public")

// Ports are the public ports of all containers. It is safe for concurrent use.
type Ports struct {
	changing keylock.Set // by container: reading the set and writing it

	mu   sync.Mutex // guards open
	open map[string]map[*stranger]struct{}
}

// New returns Ports without strangers.
func New() *Ports { return &Ports{open: map[string]map[*stranger]struct{}{}} }

// A stranger is one request.
type stranger struct {
	port   uint16
	cancel context.CancelCauseFunc
}

// Enter lets a stranger's request to a port of s in. Its context ends with ErrWithdrawn when the port is withdrawn. The
// caller calls leave when the request has ended. If the port is not public, ok is false. Too many strangers at a time
// are an error.
func (p *Ports) Enter(ctx context.Context, s *session.Session, port uint16) (_ context.Context, leave func(), ok bool,
	err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := &stranger{port, cancel}
	p.mu.Lock()
	all := p.open[s.ID()]
	if len(all) >= maxStrangers {
		p.mu.Unlock()
		cancel(nil)
		return nil, nil, true, proto.Errorf(proto.TooMany, "", s.ID(), "the public ports of container %s have %d "+
			"requests, which is the limit; try again later", s.ID(), maxStrangers)
	}
	if all == nil {
		all = map[*stranger]struct{}{}
		p.open[s.ID()] = all
	}
	all[one] = struct{}{}
	p.mu.Unlock()
	leave = func() {
		cancel(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		if delete(all, one); len(all) == 0 {
			delete(p.open, s.ID())
		}
	}
	if !s.Info().PublicPorts.Has(port) { // asked once it is registered, so that a change meanwhile ends it
		leave()
		return nil, nil, false, nil
	}
	return ctx, leave, true, nil
}

// Change changes a container, and lets no other change of its public ports in between. edit completes the request
// with what the container has now; nil changes nothing in it.
func (p *Ports) Change(ctx context.Context, s *session.Session, req proto.ChangeContainer,
	edit func(proto.Container, *proto.ChangeContainer) error) (proto.Container, error) {
	unlock, err := p.changing.Lock(ctx, s.ID())
	if err != nil {
		return proto.Container{}, err
	}
	defer unlock()
	if edit != nil {
		if err := edit(s.Info(), &req); err != nil {
			return proto.Container{}, err
		}
	}
	defer p.expel(s) // also after an error: the change may have been made before it
	return s.Change(ctx, req)
}

// expel ends the requests of strangers to ports that are not public.
func (p *Ports) expel(s *session.Session) {
	now := s.Info().PublicPorts
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.open[s.ID()] {
		if !now.Has(one.port) {
			one.cancel(ErrWithdrawn)
		}
	}
}

// Publish makes a port, or All, public.
func (p *Ports) Publish(ctx context.Context, s *session.Session, port string) (proto.PublishedPorts, error) {
	return p.set(ctx, s, port, func(now proto.PublicPorts, n uint16) (proto.PublicPorts, error) {
		if now.All = now.All || n == 0; n != 0 {
			now.Ports = append(now.Ports, n)
		}
		return now.Normal(), nil
	})
}

// Withdraw makes a port private again, or with All every port. While all are public, a single one cannot be private.
func (p *Ports) Withdraw(ctx context.Context, s *session.Session, port string) (proto.PublishedPorts, error) {
	return p.set(ctx, s, port, func(now proto.PublicPorts, n uint16) (proto.PublicPorts, error) {
		switch {
		case n == 0:
			return proto.PublicPorts{}, nil
		case now.All:
			return now, proto.Errorf(proto.Conflict, "", port, "all ports of container %s are public; make all "+
				"private first, with %q in place of %d, and then public what has to be", s.ID(), All, n)
		}
		now.Ports = slices.DeleteFunc(now.Ports, func(have uint16) bool { return have == n })
		return now, nil
	})
}

// set changes the set of a container. edit gets 0 for All.
func (p *Ports) set(ctx context.Context, s *session.Session, text string,
	edit func(proto.PublicPorts, uint16) (proto.PublicPorts, error)) (done proto.PublishedPorts, err error) {
	number, err := Parse(text)
	if err != nil {
		return done, err
	}
	now, err := p.Change(ctx, s, proto.ChangeContainer{}, func(have proto.Container, req *proto.ChangeContainer) error {
		next, err := edit(have.PublicPorts, number)
		req.PublicPorts = &next
		return err
	})
	if err != nil {
		return done, err
	}
	return proto.PublishedPorts{All: now.PublicPorts.All, Ports: append([]uint16{}, now.PublicPorts.Ports...)}, nil
}

// Parse reads a port that can be public, or All, which is 0.
func Parse(text string) (uint16, error) {
	if text == All {
		return 0, nil
	}
	n, err := inbound.ParsePort(text)
	if err != nil && proto.CodeOf(err) == proto.InvalidArgument {
		return 0, proto.Invalid("port", "%.20q is not a port; use a number from 1 to 65535, or %q", text, All)
	}
	return n, err
}
