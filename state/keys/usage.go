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

	writing bool // the ledger is about to write it, as it is then
}

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// nextDay is the next midnight UTC after t, when the budgets of CPU time are full again.
func nextDay(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour) }

// quota is the quota of a key; a key that is not known has none.
func (s *Store) quota(id string) proto.Quota {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.byID[id]; e != nil {
		return e.rec.Quota
	}
	return proto.Quota{}
}

// MaxSessions is how many containers of this key there may be at once; 0 is no bound.
func (s *Store) MaxSessions(id string) int64 { return s.quota(id).Sessions }

// MaxStorage is how many bytes the stored files of this key may have; 0 is no bound.
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

// CPUSeconds is what the key's commands that ended today took.
func (s *Store) CPUSeconds(id string) float64 {
	day := dayOf(s.cfg.Now())
	s.spending.Lock()
	defer s.spending.Unlock()
	if u := s.spent[id]; u != nil && u.Day == day {
		return u.Seconds
	}
	return 0
}

// CPUResetsAt is when the budgets of CPU time are full again.
func (s *Store) CPUResetsAt() time.Time { return nextDay(s.cfg.Now()) }

// Ran charges a key for a command that ended. The ledger has it soon, in the order in which the ends are written
// down: a crash that forgets it forgets the command's end too.
func (s *Store) Ran(id string, cpuSeconds float64) {
	if id == "" || !(cpuSeconds > 0) { // NaN too: a guest says what it likes
		return
	}
	if u, write := s.charge(id, cpuSeconds); write { // outside the lock, which the ledger's writer takes in toWrite
		s.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return tx.Put(bucketUsage, id, s.toWrite(u)) })
	}
}

// charge adds to what a key has spent, and reports whether that is still to be written.
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

// toWrite is what the ledger is to have of u; what is charged later is written again.
func (s *Store) toWrite(u *spent) spent {
	s.spending.Lock()
	defer s.spending.Unlock()
	u.writing = false
	return *u
}
