package session

import (
	"context"
	"errors"
	"sync"

	"berth/guest"
	"berth/proto"
)

// maxSilent is how many sweeps in a row a guest may leave without an answer, while its connections stand, before its
// sandbox counts as lost: a busy machine makes guests slow, and what runs in them must not pay for that.
const maxSilent = 3

// sweepGuests finds the sessions that are written down as running and whose sandbox is gone, or whose guest has
// stopped answering, so that this is known before their next use. An answer costs some tens of microseconds, and one
// that dozes is not woken for it.
func (ss *Sessions) sweepGuests(ctx context.Context, all []*Session, done *Swept) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, reconcileParallel)
	lost, dozing := make([]bool, len(all)), make([]bool, len(all))
	for i, s := range all {
		if ctx.Err() != nil {
			break
		}
		if s.state() != proto.StateRunning {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			lost[i], dozing[i] = s.check(ctx)
		})
	}
	wg.Wait()
	for i := range all {
		count(&done.Lost, lost[i])
		count(&done.Dozing, dozing[i])
	}
	return nil
}

// check asks the guest whether it is there, and has its generation end if it is not. One that nobody has used for a
// while dozes from then on. It reports whether it was this call that found out, or that did so.
func (s *Session) check(ctx context.Context) (lost, dozing bool) {
	g := s.client()
	// a sweep meets whoever neither dozes nor is paused before it comes here
	if s.stillPaused() || g.Dozes() || s.unmet.Load() && !s.isPaused() {
		return false, false
	}
	dozing, err := s.ask(ctx, g)
	if ctx.Err() != nil || s.stillPaused() {
		return false, dozing
	}
	if !s.tooSilent(err != nil, slow(err)) {
		return false, dozing
	}
	return s.foundLost(ctx, g), false
}

// slow reports whether err says that no answer has come, rather than that none will.
func slow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || proto.CodeOf(err) == proto.TimedOut
}

// ask has the guest doze, or say who it is if it has reason to be awake.
func (s *Session) ask(ctx context.Context, g *guest.Client) (dozing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if s.mayDoze() && g.Doze(ctx) == nil {
		return true, nil
	}
	_, err = g.Hello(ctx) // which tells, whatever that failed for: an older guest does not know how to doze
	return false, err
}

// mayDoze reports whether nobody has used the session for long enough.
func (s *Session) mayDoze() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users == 0 && s.rec.unusedFor(s.core.cfg.DozeAfter, s.core.clock.now())
}

// tooSilent counts the times that the guest did not answer, and reports whether these are enough. A refused
// connection is enough at once.
func (s *Session) tooSilent(failed, slow bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !failed {
		s.silent = 0
		return false
	}
	s.silent++
	if slow && s.silent < maxSilent {
		return false
	}
	s.silent = 0
	return true
}
