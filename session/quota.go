package session

import (
	"context"
	"time"

	"berth/proto"
)

// checkRoom fails with TooMany if the daemon, or the API key that makes the session, has as many sessions as allowed.
// Called with mu held, under which the session is then added, so that two requests cannot take one slot.
func (ss *Sessions) checkRoom(key string) error {
	if n := ss.index.all; n >= int64(ss.cfg.MaxSessions) {
		return proto.Errorf(proto.TooMany, "", "", "this daemon has %d containers, which is its limit; delete one "+
			"or wait for one to expire", n).
			After(ss.untilRoom(func(*Session) bool { return true }))
	}
	if key == "" {
		return nil
	}
	if most, n := ss.cfg.Quotas.MaxSessions(key), ss.index.live[key]; most > 0 && n >= most {
		return proto.Errorf(proto.TooMany, "", key, "this API key has %d containers, and its quota is %d; delete "+
			"one or wait for one to expire", n, most).
			After(ss.untilRoom(func(s *Session) bool { return s.key == key }))
	}
	return nil
}

// longestWait bounds the time that a client is told to wait until a session expires, since a session may be deleted
// earlier.
const longestWait = time.Minute

// untilRoom returns the time until the first of the counted sessions expires. Called with mu held.
func (ss *Sessions) untilRoom(counts func(*Session) bool) time.Duration {
	wait, now := longestWait, ss.clock.now()
	for _, s := range ss.byID {
		if s.counted && counts(s) {
			wait = min(wait, s.record().cap().Sub(now))
		}
	}
	return wait
}

// KeySessions returns the number of sessions of an API key that have not expired.
func (ss *Sessions) KeySessions(key string) int64 {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.index.live[key]
}

// mayRun fails with TooMany if the API key of ctx has no CPU time left. Running commands go on.
func (c Config) mayRun(ctx context.Context) error {
	if key := proto.CallerOf(ctx).KeyID; key != "" {
		return c.Quotas.MayRun(key)
	}
	return nil
}

func (unbounded) MaxSessions(string) int64 { return 0 }

func (unbounded) MayRun(string) error { return nil }

func (unbounded) Ran(string, float64) {}
