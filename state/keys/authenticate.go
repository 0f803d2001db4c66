package keys

import (
	"context"
	"math"
	"strings"
	"time"

	"berth/proto"

	"golang.org/x/time/rate"
)

// maxSecret bounds how much of a wrong key is hashed, in bytes.
const maxSecret = 4096

// unknownKey is the entry that a wrong key is compared with, so that it costs as much as a right one. Its secret is
// unknown.
var unknownKey = &entry{rec: newRecord(newSecret(), time.Time{})}

// errWrong is the answer to every unusable key. It does not reveal whether the key was ever valid.
var errWrong = proto.Errorf(proto.Unauthenticated, "", "", "Invalid API key.")

// Authenticate returns the caller whose key secret is. It fails with Unauthenticated for a wrong, revoked or expired
// key, in the same words and after the same work. It fails with TooMany for a key over its rate.
func (s *Store) Authenticate(_ context.Context, secret string) (proto.Caller, error) {
	h := hashOf(secret[:min(len(secret), maxSecret)])
	s.mu.RLock()
	e := s.byHash[h]
	if e == nil {
		e = unknownKey
	}
	rec := e.rec
	s.mu.RUnlock()
	now := s.cfg.Now()
	if right, holds := rec.hash().is(h), rec.holds(now); !right || !holds || len(secret) > maxSecret {
		return proto.Caller{}, errWrong
	}
	if err := e.admit(now); err != nil {
		return proto.Caller{}, err
	}
	e.used.Store(now.UnixNano())
	return rec.caller(), nil
}

// Named returns the caller of the usable key with this name: the oldest one, if several have it. It fails with NotFound
// if there is none, and with TooMany if the key is over its rate.
func (s *Store) Named(name string) (proto.Caller, error) {
	now := s.cfg.Now()
	s.mu.RLock()
	var found *entry
	for _, e := range s.byName[name] {
		if e.rec.holds(now) && (found == nil || e.rec.Created.Before(found.rec.Created)) {
			found = e
		}
	}
	if found == nil {
		s.mu.RUnlock()
		return proto.Caller{}, proto.Errorf(proto.NotFound, "", "", "There is no API key of this name.")
	}
	caller := found.rec.caller()
	s.mu.RUnlock()
	if err := found.admit(now); err != nil {
		return proto.Caller{}, err
	}
	found.used.Store(now.UnixNano())
	return caller, nil
}

// Knows reports whether a text is the secret of a key, or looks like one made here. Such a text must not leave the
// daemon.
func (s *Store) Knows(secret string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return strings.HasPrefix(secret, secretPrefix) || s.byHash[hashOf(secret)] != nil
}

// Life returns a context that ends when the key is revoked or expires. For an unknown key it has ended.
func (s *Store) Life(id string) context.Context {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.byID[id]; e != nil {
		return e.life
	}
	return ended
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Admit counts one more request of a key against its rate. It is for requests on a connection that was authenticated
// before.
func (s *Store) Admit(id string) error {
	s.mu.RLock()
	e := s.byID[id]
	s.mu.RUnlock()
	if e == nil {
		return errWrong
	}
	return e.admit(s.cfg.Now())
}

// rateOf returns a quota's rate and burst in the limiter's form.
func rateOf(q proto.Quota) (rate.Limit, int) {
	if q.RequestsPerSecond == 0 {
		return rate.Inf, 0
	}
	if q.Burst > 0 {
		return rate.Limit(q.RequestsPerSecond), int(q.Burst)
	}
	return rate.Limit(q.RequestsPerSecond), max(1, int(math.Ceil(q.RequestsPerSecond)))
}

// admit takes a token, or reports when there is one. A refused request takes none, so asking too often does not lock
// a client out.
func (e *entry) admit(now time.Time) error {
	limiter := e.limiter.Load()
	if limiter.AllowN(now, 1) {
		return nil
	}
	wait := time.Duration((1 - limiter.TokensAt(now)) / float64(limiter.Limit()) * float64(time.Second))
	return proto.Errorf(proto.TooMany, "", e.id, "This API key may make %g requests per second; try again later.",
		float64(limiter.Limit())).After(wait)
}

// pace applies a quota's rate to the key. A key without a rate so far begins with a full burst.
func (e *entry) pace(q proto.Quota, now time.Time) {
	limit, burst := rateOf(q)
	limiter := e.limiter.Load()
	if limiter.Limit() == rate.Inf { // it holds no tokens and would refuse the next request
		e.limiter.Store(rate.NewLimiter(limit, burst))
		return
	}
	limiter.SetLimitAt(now, limit)
	limiter.SetBurstAt(now, burst)
}

// ByID returns the caller of the usable key with this ID, on whose behalf something else acts that the key has allowed.
// It fails with Unauthenticated if there is none, and with TooMany if the key is over its rate.
func (s *Store) ByID(id string) (proto.Caller, error) {
	now := s.cfg.Now()
	s.mu.RLock()
	e := s.byID[id]
	if e == nil || !e.rec.holds(now) {
		s.mu.RUnlock()
		return proto.Caller{}, errWrong
	}
	caller := e.rec.caller()
	s.mu.RUnlock()
	if err := e.admit(now); err != nil {
		return proto.Caller{}, err
	}
	e.used.Store(now.UnixNano())
	return caller, nil
}
