package session

import (
	"context"
	"time"

	"berth/proto"
)

// checkRoom fails with TooMany where the daemon, or the API key that makes the session, has as many as it may have.
// Called with mu held, under which the session is then added: nobody can take the same place twice.
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

// longestWait bounds what a caller is told to wait for a session to expire, since one may be deleted at any time.
const longestWait = time.Minute

// untilRoom is after how long the first of those that count will have expired. Called with mu held.
func (ss *Sessions) untilRoom(counts func(*Session) bool) time.Duration {
	wait, now := longestWait, ss.clock.now()
	for _, s := range ss.byID {
		if s.counted && counts(s) {
			wait = min(wait, s.record().cap().Sub(now))
		}
	}
	return wait
}

// KeySessions is how many sessions that have not expired were made with an API key.
func (ss *Sessions) KeySessions(key string) int64 {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.index.live[key]
}

// mayRun fails with TooMany when the API key of ctx has no CPU time left. What runs already goes on.
func (c Config) mayRun(ctx context.Context) error {
	if key := proto.CallerOf(ctx).KeyID; key != "" {
		return c.Quotas.MayRun(key)
	}
	return nil
}

func (unbounded) MaxSessions(string) int64 { return 0 }

func (unbounded) MayRun(string) error { return nil }

func (unbounded) Ran(string, float64) {}
