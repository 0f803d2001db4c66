package files

import (
	"sync"

	"berth/proto"
)

// A payer is the pair whose quotas a file counts against: its owner and the API key that made it.
type payer struct{ owner, key string }

// An account counts how many bytes each owner and each key uses. Uploads under way are included, so parallel uploads
// cannot exceed a limit together. A content that several files share counts in full for each of them: an owner's
// usage must not depend on what others store.
type account struct {
	keyLimit func(key string) int64 // 0 is no limit; nil: no key has a limit

	mu    sync.Mutex // guards what follows
	limit int64      // per owner; 0 is no limit
	used  map[string]int64
	byKey map[string]int64
}

// reserve takes n bytes or fails with QuotaExceeded.
func (a *account) reserve(p payer, n int64) error {
	var most int64 // of the key
	if a.keyLimit != nil && p.key != "" {
		most = a.keyLimit(p.key)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limit > 0 && a.used[p.owner]+n > a.limit {
		return proto.Errorf(proto.QuotaExceeded, "upload", "file",
			"Storage quota of %d bytes exceeded; delete files to make room.", a.limit)
	}
	if most > 0 && a.byKey[p.key]+n > most {
		return proto.Errorf(proto.QuotaExceeded, "upload", "file",
			"Storage quota of %d bytes of this API key exceeded; delete files made with it to make room.", most)
	}
	a.used[p.owner] += n
	a.byKey[p.key] += n
	return nil
}

// SetQuota changes the bytes of stored files that an owner may have; 0 is no limit. What is stored stays.
func (s *Store) SetQuota(bytes int64) {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	s.account.limit = bytes
}

func (a *account) release(p payer, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	less(a.used, p.owner, n)
	less(a.byKey, p.key, n)
}

// less subtracts n, and removes the entry at 0.
func less(used map[string]int64, who string, n int64) {
	if used[who] -= n; used[who] <= 0 {
		delete(used, who)
	}
}

// Usage returns how many bytes owner's files take, uploads under way included.
func (s *Store) Usage(owner string) int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.account.used[owner]
}

// KeyUsage returns how many bytes the files made with an API key take, uploads under way included.
func (s *Store) KeyUsage(key string) int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.account.byKey[key]
}
