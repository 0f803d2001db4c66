package e2b

import (
	"context"
	"net/http"
	"time"

	"berth/proto"
	"berth/session"
)

// setTimeout moves the end of the lease, in either direction. A timeout of 0 ends it now.
func (e *Edge) setTimeout(c *call) (any, error) {
	var ask struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := c.read(&ask); err != nil {
		return nil, err
	}
	if ask.Timeout == nil {
		return nil, proto.Invalid("timeout", "timeout must be a number of seconds")
	}
	seconds, err := leaseSeconds(ask.Timeout, 0)
	if err != nil {
		return nil, err
	}
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	if stateOf(s.Info()) != running { // old clients resume it then
		return nil, proto.Errorf(proto.NotFound, "", c.asked, "sandbox %.80q is paused; resume it", c.asked)
	}
	return nil, endIn(c.r.Context(), s, seconds)
}

// refresh extends the lease.
func (e *Edge) refresh(c *call) (any, error) {
	var ask struct {
		Duration *int64 `json:"duration"`
	}
	if err := c.read(&ask); err != nil {
		return nil, err
	}
	seconds, err := leaseSeconds(ask.Duration, shortLease)
	if err != nil {
		return nil, err
	}
	s, err := e.use(c, running)
	if err != nil {
		return nil, err
	}
	return nil, extend(c.r.Context(), s, seconds)
}

// endIn has the lease end after that many seconds.
func endIn(ctx context.Context, s *session.Session, seconds int64) error {
	_, err := s.Change(ctx, proto.ChangeContainer{Lease: proto.LeaseRequest{EndsInSeconds: &seconds}})
	return err
}

// extend has the lease end not before that many seconds.
func extend(ctx context.Context, s *session.Session, seconds int64) error {
	if time.Until(s.Info().ExpiresAt.Time) >= time.Duration(seconds)*time.Second {
		return nil
	}
	return endIn(ctx, s, seconds)
}

// A wake asks for a sandbox that runs.
type wake struct {
	Timeout   *int64 `json:"timeout"`
	AutoPause *bool  `json:"autoPause"`
	Memory    *bool  `json:"memory"` // false: without the processes that it had
}

// connect answers with a sandbox that runs, and extends its lease. A paused one is resumed, with a lease anew.
func (e *Edge) connect(second bool) handler {
	return func(c *call) (any, error) {
		var ask wake
		if err := c.read(&ask); err != nil {
			return nil, err
		}
		if ask.Timeout == nil && !second {
			return nil, proto.Invalid("timeout", "timeout must be a number of seconds")
		}
		seconds, err := leaseSeconds(ask.Timeout, usualLease)
		if err != nil {
			return nil, err
		}
		s, err := e.session(c)
		if err != nil {
			return nil, err
		}
		if stateOf(s.Info()) == running {
			return e.describe(c, s), extend(c.r.Context(), s, seconds)
		}
		return e.wake(c, s, ask, seconds)
	}
}

// resume is connect of old clients, for a paused sandbox.
func (e *Edge) resume(c *call) (any, error) {
	var ask wake
	if err := c.read(&ask); err != nil {
		return nil, err
	}
	seconds, err := leaseSeconds(ask.Timeout, shortLease)
	if err != nil {
		return nil, err
	}
	s, err := e.use(c, paused)
	if err != nil {
		return nil, err
	}
	return e.wake(c, s, ask, seconds)
}

// wake resumes a sandbox, or starts it over its files.
func (e *Edge) wake(c *call, s *session.Session, ask wake, seconds int64) (any, error) {
	ctx := c.r.Context()
	if ask.Memory != nil && !*ask.Memory {
		if err := s.Stop(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	lease := proto.LeaseRequest{Mode: proto.LeaseAbsolute, AtEnd: settingsOf(s.Info()).atEnd, EndsInSeconds: &seconds}
	if ask.AutoPause != nil {
		if lease.AtEnd = proto.LeaseRemove; *ask.AutoPause {
			lease.AtEnd = proto.LeasePause
		}
	}
	if _, err := s.Change(ctx, proto.ChangeContainer{Lease: lease}); err != nil {
		return nil, err
	}
	c.status = http.StatusCreated
	return e.describe(c, s), nil
}

// kill deletes a sandbox, in any state.
func (e *Edge) kill(c *call) (any, error) {
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	defer e.streams.leave(c.r.Context(), s.ID())()
	return nil, e.cfg.Sessions.Delete(c.r.Context(), c.owner, s.ID(), false)
}
