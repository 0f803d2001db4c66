package keys

import (
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// spent is the CPU time of one key on one day.
type spent struct {
	Day     string  `json:"day"` // of UTC: "2026-01-31"
	Seconds float64 `json:"seconds"`

	writing bool // the ledger is about to write its value of that moment
}

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// nextDay returns the next midnight UTC after t, when CPU budgets are full again.
func nextDay(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour) }

// quota returns the quota of a key. An unknown key has none.
func (s *Store) quota(id string) proto.Quota {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.byID[id]; e != nil {
		return e.rec.Quota
	}
	return proto.Quota{}
}

// MaxSessions returns how many containers of this key may exist at once; 0 is no bound.
func (s *Store) MaxSessions(id string) int64 { return s.quota(id).Sessions }

// MaxStorage returns how many bytes the stored files of this key may have; 0 is no bound.
func (s *Store) MaxStorage(id string) int64 { return s.quota(id).StorageBytes }

// MayRun fails with TooMany when the key's CPU time of today is used up.
func (s *Store) MayRun(id string) error {
	most := s.quota(id).CPUSecondsPerDay
	if most == 0 || s.CPUSeconds(id) < most {
		return nil
	}
	now := s.cfg.Now()
	return proto.Errorf(proto.TooMany, "", id, "This API key has used up its %g CPU seconds of today; there are "+
		"more from %s on, or ask for a larger quota.",
		most, nextDay(now).Format(time.RFC3339)).After(nextDay(now).Sub(now))
}

// CPUSeconds returns the CPU time that the key was charged today.
func (s *Store) CPUSeconds(id string) float64 {
	day := dayOf(s.cfg.Now())
	s.spending.Lock()
	defer s.spending.Unlock()
	if u := s.spent[id]; u != nil && u.Day == day {
		return u.Seconds
	}
	return 0
}

// Usage returns what the store knows of the use of a key.
func (s *Store) Usage(k proto.Key) proto.KeyUsage {
	return proto.KeyUsage{CPUSecondsToday: s.CPUSeconds(k.ID), CPUResetsAt: proto.At(s.CPUResetsAt())}
}

// CPUResetsAt returns when CPU budgets are full again.
func (s *Store) CPUResetsAt() time.Time { return nextDay(s.cfg.Now()) }

// Ran charges a key for CPU time, of an ended command or of processes that one left behind. The ledger writes charges
// and ends of commands in the same order: a crash that loses the charge loses the command's end too.
func (s *Store) Ran(id string, cpuSeconds float64) {
	if id == "" || !(cpuSeconds > 0) { // also NaN: a guest can report any value
		return
	}
	if u, write := s.charge(id, cpuSeconds); write { // outside the lock, which the ledger's writer takes in toWrite
		s.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return tx.Put(bucketUsage, id, s.toWrite(u)) })
	}
}

// charge adds CPU time to a key, and reports whether a write is still needed.
func (s *Store) charge(id string, cpuSeconds float64) (u *spent, write bool) {
	day := dayOf(s.cfg.Now())
	s.spending.Lock()
	defer s.spending.Unlock()
	if u = s.spent[id]; u == nil {
		u = &spent{}
		s.spent[id] = u
	}
	if u.Day != day {
		u.Day, u.Seconds = day, 0
	}
	u.Seconds += cpuSeconds
	write = !u.writing
	u.writing = true
	return u, write
}

// toWrite returns the value of u for the ledger. Later charges are written again.
func (s *Store) toWrite(u *spent) spent {
	s.spending.Lock()
	defer s.spending.Unlock()
	u.writing = false
	return *u
}
