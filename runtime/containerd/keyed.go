package containerd

import (
	"context"
	"sync"
)

// keyed is a set of locks by name. Waiting ends with the context.
type keyed struct {
	mu    sync.Mutex // guards locks
	locks map[string]*keyedLock
}

type keyedLock struct {
	held  chan struct{} // full while somebody has the lock
	users int           // holders and waiters; the entry goes with the last
}

// lock takes the lock of key. The returned function gives it back.
func (k *keyed) lock(ctx context.Context, key string) (func(), error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = make(map[string]*keyedLock)
	}
	l := k.locks[key]
	if l == nil {
		l = &keyedLock{held: make(chan struct{}, 1)}
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

func (k *keyed) leave(key string, l *keyedLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
