package session

import (
	"context"
	"time"

	"berth/proto"
)

// Quotas are the bounds of API keys, as package keys has them. The session that counts them is here.
type Quotas interface {
	MaxSessions(key string) int64       // that have not expired, at once; 0 is no bound
	MayRun(key string) error            // TooMany when the key's CPU time is used up
	Ran(key string, cpuSeconds float64) // charges the key for an exec that ended
}

// unbounded are the quotas of a daemon that has none.
type unbounded struct{}

func (unbounded) MaxSessions(string) int64 { return 0 }
func (unbounded) MayRun(string) error      { return nil }
func (unbounded) Ran(string, float64)      {}

// longestWait bounds what a caller is told to wait for a session to expire, since one may be deleted at any time.
const longestWait = time.Minute

// room fails with TooMany where the daemon, or the API key that makes the session, has as many as it may have. Called with mu
// held, under which the session is then added: nobody can take the same place twice.
func (ss *Sessions) room(key string) error {
	all, own := live{}, live{}
	for _, s := range ss.byID {
		if r := s.record(); r.State != proto.StateExpired {
			all.add(r)
			if r.Key == key {
				own.add(r)
			}
		}
	}
	if all.n >= int64(ss.cfg.MaxSessions) {
		return proto.Errorf(proto.TooMany, "", "", "this daemon has %d containers, which is its limit; delete one or wait for one to expire", all.n).After(all.wait(ss.cfg.Now()))
	}
	if key == "" {
		return nil
	}
	if most := ss.cfg.Quotas.MaxSessions(key); most > 0 && own.n >= most {
		return proto.Errorf(proto.TooMany, "", key, "this API key has %d containers, and its quota is %d; delete one or wait for one to expire", own.n, most).After(own.wait(ss.cfg.Now()))
	}
	return nil
}

// live counts sessions that have not expired.
type live struct {
	n     int64
	first time.Time // when the first of them expires
}

func (l *live) add(r record) {
	l.n++
	if c := r.cap(); l.n == 1 || c.Before(l.first) {
		l.first = c
	}
}

// wait is after how long there may be room again.
func (l live) wait(now time.Time) time.Duration { return min(l.first.Sub(now), longestWait) }

// KeySessions is how many sessions that have not expired were made with an API key.
func (ss *Sessions) KeySessions(key string) (n int64) {
	ss.mu.RLock()
	all := ss.snapshot()
	ss.mu.RUnlock()
	for _, s := range all {
		if r := s.record(); r.Key == key && r.State != proto.StateExpired {
			n++
		}
	}
	return n
}

// mayRun fails with TooMany when the API key of ctx has no CPU time left. What runs already goes on.
func (c Config) mayRun(ctx context.Context) error {
	if key := proto.CallerOf(ctx).KeyID; key != "" {
		return c.Quotas.MayRun(key)
	}
	return nil
}

// charge has the API key that started the exec pay for it. A guest, which is not trusted, cannot make it more than the
// container's CPUs had in that time.
func (e *Exec) charge(info proto.Exec) {
	most := info.Duration(time.Time{}).Seconds() * e.s.record().Limits.CPUs
	e.s.core.cfg.Quotas.Ran(e.key, min(info.End.CPUSeconds, most+grain))
}

// grain is what the kernel's count of CPU time may be ahead of the clock, in seconds.
const grain = 0.1
