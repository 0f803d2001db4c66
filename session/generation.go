package session

import (
	"context"

	"berth/guest"
	"berth/proto"
)

type generationKey struct{}

// InGeneration binds what is done with ctx to one generation of a container: where that is not the one that
// runs, it fails with a Conflict that names both, and starts nothing. 0 binds to none.
func InGeneration(ctx context.Context, generation int64) context.Context {
	if generation == 0 {
		return ctx
	}
	return context.WithValue(ctx, generationKey{}, generation)
}

// boundLocked says why ctx cannot use the session's present generation, if it is bound to another. Called with
// mu held.
func (s *Session) boundLocked(ctx context.Context) error {
	want, _ := ctx.Value(generationKey{}).(int64)
	switch {
	case want == 0 || s.runningLocked() && s.rec.Generation == want:
		return nil
	case s.runningLocked():
		return proto.Errorf(proto.Conflict, "", s.id, "container %s is at generation %d and generation %d is over; "+
			"its files are kept, its processes are gone; send the request without a generation, or with the present one",
			s.id, s.rec.Generation, want)
	}
	return proto.Errorf(proto.Conflict, "", s.id, "container %s is stopped after generation %d, so generation %d "+
		"does not run; its files are kept; send the request without a generation to start it again",
		s.id, s.rec.Generation, want)
}

// clientFor is client, unless ctx is bound to another generation: between use and this the container may have
// been stopped and started anew. An exec that is to run there is told which generation it is.
func (s *Session) clientFor(ctx context.Context, e *Exec) (*guest.Client, error) {
	s.mu.Lock()
	g, n, err := s.guest, s.rec.Generation, s.boundLocked(ctx)
	s.mu.Unlock()
	if e != nil {
		e.mu.Lock()
		e.info.Generation = n
		e.mu.Unlock()
	}
	return g, err
}

// revive starts the session again for e after it was found lost, and is the next generation's client; for
// what is bound to the one before there is none.
func (s *Session) revive(ctx context.Context, e *Exec) (*guest.Client, error) {
	if _, err := s.clientFor(ctx, nil); err != nil {
		return nil, err
	}
	if err := s.restart(ctx); err != nil {
		return nil, err
	}
	return s.clientFor(ctx, e)
}
