package files

import (
	"sync"

	"berth/proto"
)

// An account knows how many bytes each owner uses, uploads under way included, so that parallel
// uploads cannot pass the limit together. What a content that several files share takes on disk
// counts for each of them: what an owner uses must not depend on what others store.
type account struct {
	limit int64 // per owner; 0 is none

	mu   sync.Mutex // guards used
	used map[string]int64
}

// reserve takes n bytes or fails with QuotaExceeded.
func (a *account) reserve(owner string, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limit > 0 && a.used[owner]+n > a.limit {
		return proto.Errorf(proto.QuotaExceeded, "upload", "file",
			"Storage quota of %d bytes exceeded; delete files to make room.", a.limit)
	}
	a.used[owner] += n
	return nil
}

func (a *account) release(owner string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used[owner] -= n; a.used[owner] <= 0 {
		delete(a.used, owner)
	}
}

func (a *account) of(owner string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used[owner]
}

// Usage is how many bytes owner's files take, uploads under way included.
func (s *Store) Usage(owner string) int64 { return s.account.of(owner) }
