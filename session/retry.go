package session

import (
	"context"
	"encoding/json"
	"time"

	"berth/proto"
)

// A retry is what a request can be known by when it comes again.
type retry struct {
	Key  string `json:"key,omitempty"`  // the caller's
	Hash string `json:"hash,omitempty"` // of what was asked for: a keyed one, since that holds secrets
}

// retryTime is how long an idempotency key is remembered at least, and keptRetries how many ended execs a session
// remembers for that.
const (
	retryTime   = 24 * time.Hour
	keptRetries = 1000
)

// newRetry is how a request with this key is known again; request is anything that JSON can tell apart.
func (ss *Sessions) newRetry(key string, request any) (retry, error) {
	if len(key) > proto.MaxRetryKey {
		return retry{}, invalid("idempotency_key", "the idempotency key has %d bytes; %d is the limit", len(key),
			proto.MaxRetryKey)
	}
	if !proto.ValidRetryKey(key) {
		return retry{}, invalid("idempotency_key", "the idempotency key must be printable ASCII")
	}
	b, err := json.Marshal(request)
	if err != nil {
		return retry{}, err
	}
	return retry{key, ss.digest(b)}, nil
}

// same fails where two requests have the same key and are not the same.
func (r retry) same(other retry) error {
	if r.Hash == other.Hash {
		return nil
	}
	return proto.Errorf(proto.Conflict, "", r.Key, "idempotency key %q was used for another request; use a new key "+
		"for each new request", r.Key)
}

// A try is an exec or a session with a key while it is being started.
type try struct {
	retry
	done chan struct{} // closed when it has, or has not
}

// Exec starts a command and returns once its process exists. The command does not end with
// ctx; whoever wants that calls Cancel. One with a key that was asked for before is not started again.
func (s *Session) Exec(ctx context.Context, cmd proto.Cmd) (*Exec, error) {
	e, _, err := s.ExecOnce(ctx, cmd)
	return e, err
}

// ExecOnce is Exec that tells whether the exec is one of an earlier request with the same key.
func (s *Session) ExecOnce(ctx context.Context, cmd proto.Cmd) (e *Exec, replayed bool, err error) {
	if cmd.IdempotencyKey == "" {
		e, err = s.exec(ctx, cmd, retry{})
		return e, false, err
	}
	asked := cmd
	asked.IdempotencyKey = ""
	r, err := s.core.newRetry(cmd.IdempotencyKey, asked)
	if err != nil {
		return nil, false, err
	}
	for {
		e, t, err := s.tryOnce(r)
		switch {
		case err != nil:
			return nil, false, err
		case e != nil:
			return e, true, nil
		case t == nil:
			e, err := s.startKeyed(ctx, cmd, r)
			return e, false, err
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// startKeyed starts a command that is ours to start, whether or not its client waits for that, as it may have to for
// long: for a shell.
func (s *Session) startKeyed(ctx context.Context, cmd proto.Cmd, r retry) (*Exec, error) {
	var e *Exec
	started := make(chan error, 1)
	err := s.core.track(nil, func() {
		defer s.tried(r)
		var err error
		e, err = s.exec(onBehalf(s.core.ctx, ctx), cmd, r)
		started <- err
	})
	if err != nil {
		s.tried(r)
		return nil, err
	}
	select {
	case err := <-started:
		return e, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryOnce finds the exec of an earlier request, or the try to start it. If there is neither, the caller's is the
// first, and tried ends it.
func (s *Session) tryOnce(r retry) (*Exec, *try, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return nil, nil, err
	}
	if t := s.tries[r.Key]; t != nil {
		return nil, t, t.same(r)
	}
	for _, e := range s.execs {
		if e.number > 0 && e.retry.Key == r.Key {
			return e, nil, e.retry.same(r)
		}
	}
	s.tries[r.Key] = &try{r, make(chan struct{})}
	return nil, nil, nil
}

func (s *Session) tried(r retry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.tries[r.Key].done)
	delete(s.tries, r.Key)
}

// retriable reports whether somebody may ask for an ended exec again with its key.
func (e *Exec) retriable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.retry.Key != "" && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(retryTime))
}

// untold reports whether nobody has had the result of an exec that ended a moment ago: whoever started many at once is
// still to come for it.
func (e *Exec) untold() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.told && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(untold))
}

// Create makes a session and starts its sandbox. If it fails, or ctx ends before it is done, nothing is left of
// it. One with a key that was asked for before is not made again.
func (ss *Sessions) Create(ctx context.Context, owner string, req proto.CreateContainer) (*Session, error) {
	s, _, err := ss.CreateOnce(ctx, owner, req)
	return s, err
}

// CreateOnce is Create that tells whether the session is one of an earlier request with the same key.
func (ss *Sessions) CreateOnce(ctx context.Context, owner string, req proto.CreateContainer) (s *Session, replayed bool,
	err error) {
	if req.IdempotencyKey == "" {
		s, err = ss.create(ctx, owner, req, retry{})
		return s, false, err
	}
	asked := req
	asked.IdempotencyKey = ""
	r, err := ss.newRetry(req.IdempotencyKey, asked)
	if err != nil {
		return nil, false, err
	}
	for {
		s, t, err := ss.tryOnce(owner, r)
		switch {
		case err != nil:
			return nil, false, err
		case s != nil:
			s.met()
			return s, true, s.usable()
		case t == nil:
			defer ss.tried(owner, r)
			s, err := ss.create(ctx, owner, req, r)
			return s, false, err
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// tryOnce finds the session of an earlier request, or the try to make it. If there is neither, the caller's is the
// first, and tried ends it.
func (ss *Sessions) tryOnce(owner string, r retry) (*Session, *try, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	at := retryKey(owner, r.Key)
	if t := ss.tries[at]; t != nil {
		return nil, t, t.same(r)
	}
	if s := ss.index.byRetry[at]; s != nil {
		if rec := s.record(); !rec.Delete && !ss.halfMade(rec) {
			return s, nil, rec.Retry.same(r)
		}
	}
	ss.tries[at] = &try{r, make(chan struct{})}
	return nil, nil, nil
}

func (ss *Sessions) tried(owner string, r retry) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	at := retryKey(owner, r.Key)
	close(ss.tries[at].done)
	delete(ss.tries, at)
}
