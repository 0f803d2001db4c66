package files

import (
	"sync"

	"berth/proto"
)

// A payer is whose quotas a file counts against: its owner's, and that of the API key it was made with.
type payer struct{ owner, key string }

// An account knows how many bytes each owner and each key uses, uploads under way included, so that parallel
// uploads cannot pass a limit together. What a content that several files share takes on disk
// counts for each of them: what an owner uses must not depend on what others store.
type account struct {
	limit    int64                  // per owner; 0 is none
	keyLimit func(key string) int64 // 0 is none; nil: no key has one

	mu    sync.Mutex // guards what follows
	used  map[string]int64
	byKey map[string]int64
}

// reserve takes n bytes or fails with QuotaExceeded.
func (a *account) reserve(p payer, n int64) error {
	most := a.limitOf(p.key)
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

func (a *account) limitOf(key string) int64 {
	if a.keyLimit == nil || key == "" {
		return 0
	}
	return a.keyLimit(key)
}

func (a *account) release(p payer, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	less(a.used, p.owner, n)
	less(a.byKey, p.key, n)
}

// less takes n off, and forgets who uses nothing.
func less(used map[string]int64, who string, n int64) {
	if used[who] -= n; used[who] <= 0 {
		delete(used, who)
	}
}

// Usage is how many bytes owner's files take, uploads under way included.
func (s *Store) Usage(owner string) int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.account.used[owner]
}

// KeyUsage is how many bytes the files made with an API key take, uploads under way included.
func (s *Store) KeyUsage(key string) int64 {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.account.byKey[key]
}
