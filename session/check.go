package session

import (
	"context"
	"errors"
	"sync"

	"berth/proto"
)

// maxSilent is how many sweeps in a row a guest may leave without an answer, while its connections stand, before its
// sandbox counts as lost: a busy machine makes guests slow, and what runs in them must not pay for that.
const maxSilent = 3

// sweepLost finds the sessions that are written down as running and whose sandbox is gone, or whose guest has
// stopped answering, so that this is known before their next use. An answer costs some tens of microseconds.
func (ss *Sessions) sweepLost(ctx context.Context, all []*Session, done *Swept) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, reconcileParallel)
	lost := make([]bool, len(all))
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
			lost[i] = s.checkLost(ctx)
		})
	}
	wg.Wait()
	for _, is := range lost {
		count(&done.Lost, is)
	}
	return nil
}

// checkLost asks the guest whether it is there, and has its generation end if it is not. It reports whether
// it was this call that found out.
func (s *Session) checkLost(ctx context.Context) bool {
	if s.stillPaused() {
		return false
	}
	g := s.client()
	hello, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	_, err := g.Hello(hello)
	if ctx.Err() != nil || s.stillPaused() {
		return false
	}
	slow := errors.Is(err, context.DeadlineExceeded) || proto.CodeOf(err) == proto.TimedOut
	if !s.tooSilent(err != nil, slow) {
		return false
	}
	return s.state() == proto.StateRunning && s.lost(ctx, g)
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
