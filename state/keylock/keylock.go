// Package keylock provides locks by name whose waiters give up with their context. It does not interpret names. The
// runtime and its image store, the file store and the inputs of workspaces use it.
package keylock

import (
	"context"
	"sync"
)

// A Set is a set of locks by name. The zero value is ready for use.
type Set struct {
	mu    sync.Mutex // guards locks
	locks map[string]*lock
}

type lock struct {
	held  chan struct{} // full while the lock is held
	users int           // holders and waiters; the entry is removed with the last
}

// Lock acquires the lock of key, or fails with ctx. The returned function releases it.
func (k *Set) Lock(ctx context.Context, key string) (func(), error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = make(map[string]*lock)
	}
	l := k.locks[key]
	if l == nil {
		l = &lock{held: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()

	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; k.leave(key, l) }, nil
	case <-ctx.Done():
		k.leave(key, l)
		return nil, ctx.Err()
	}
}

func (k *Set) leave(key string, l *lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}

// Len returns how many locks are held or waited for.
func (k *Set) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.locks)
}
