package session

import (
	"context"
	"maps"
	"time"

	"berth/proto"
	"berth/session/validate"
)

// Change changes the session and returns it as it is then. A change is on disk when Change returns. What can fail comes
// first, so that a request that fails has changed nothing, or the name alone.
func (s *Session) Change(ctx context.Context, req proto.ChangeContainer) (proto.Container, error) {
	if err := validate.Change(req, s.core.cfg.Limits, s.core.cfg.PortsMax); err != nil {
		return proto.Container{}, err
	}
	unlock, err := s.lockTransition(ctx) // no start is half done, and no other change
	if err != nil {
		return proto.Container{}, err
	}
	defer unlock()
	if err := s.usable(); err != nil {
		return proto.Container{}, err
	}
	had, now := s.record(), s.core.clock.Now()
	if _, err := s.core.changedLease(had.Lease, req.Lease, now, had.cap()); err != nil {
		return proto.Container{}, err
	}
	network := had.Network
	if !req.Network.IsZero() {
		if network, err = s.core.cfg.grant(req.Network); err != nil {
			return proto.Container{}, err
		}
	}
	if req.Name != nil {
		if err := s.rename(ctx, *req.Name); err != nil {
			return proto.Container{}, err
		}
	}
	limits := req.Limits.Or(had.Limits)
	if limits != had.Limits {
		if err := s.core.cfg.Runtime.SetLimits(ctx, s.id, had.spec(), limits); err != nil {
			return proto.Container{}, err
		}
	}
	err = s.change(func(r *record) {
		r.Limits, r.Network, r.Unused = limits, network, 0
		r.Isolation.SetThroughProxy(r.connected())
		if req.PublicPorts != nil {
			r.Public = req.PublicPorts.Normal()
		}
		if req.Labels != nil {
			r.Labels = maps.Clone(req.Labels)
		}
		if l, err := s.core.changedLease(r.Lease, req.Lease, now, r.cap()); err == nil { // as above
			r.Lease = l
		}
		if req.IdleTimeoutSeconds > 0 {
			r.Lease.Idle, r.LastUsed = time.Duration(req.IdleTimeoutSeconds)*time.Second, now
		}
	})
	if err != nil && limits != had.Limits {
		spec := had.spec()
		spec.Limits = limits
		_ = s.core.cfg.Runtime.SetLimits(context.WithoutCancel(ctx), s.id, spec, had.Limits) // the next start sets them
	}
	if err == nil {
		s.applyNetwork(ctx, network)
		_, err = s.core.endLease(ctx, s, &Swept{}) // it may end now
	}
	return s.Info(), err
}
