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

// room fails with TooMany where the daemon, or the API key that makes the session, has as many as it may have. Called
// with mu held, under which the session is then added: nobody can take the same place twice.
func (ss *Sessions) room(key string) error {
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

// mayKeep fails with TooMany where as many workspaces outlive their sessions as there may be sessions, of all keys or
// of the one that made s: they hold files, and nothing but a request removes them. Else that of s is one of them from
// now on.
func (ss *Sessions) mayKeep(s *Session) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ws, ok := ss.workspaces[s.workspace]
	if !ok || ws.Kept {
		return nil
	}
	all, own := 0, int64(0)
	for _, w := range ss.workspaces {
		if w.Kept {
			all++
			if w.Key == ws.Key {
				own++
			}
		}
	}
	const remedy = "delete one that is not needed, or this container without keep_workspace"
	if all >= ss.cfg.MaxSessions {
		return proto.Errorf(proto.TooMany, "", s.workspace, "this daemon keeps %d workspaces, which is its limit; "+
			remedy, all)
	}
	if ws.Key != "" {
		if most := ss.cfg.Quotas.MaxSessions(ws.Key); most > 0 && own >= most {
			return proto.Errorf(proto.TooMany, "", s.workspace, "this API key keeps %d workspaces, and its quota of "+
				"containers is %d; "+remedy, own, most)
		}
	}
	ws.Kept = true
	ss.workspaces[ws.ID] = ws
	return nil
}

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

// charge has the API key that started the exec pay for it. A guest, which is not trusted, cannot make it more than the
// container's CPUs had in that time.
func (e *Exec) charge(info proto.Exec) {
	most := info.Duration(time.Time{}).Seconds() * e.s.record().Limits.CPUs
	e.s.core.cfg.Quotas.Ran(e.key, min(info.End.CPUSeconds, most+grain))
}

// grain is what the kernel's count of CPU time may be ahead of the clock, in seconds.
const grain = 0.1
