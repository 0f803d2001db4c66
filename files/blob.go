package files

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"berth/state/ledger"
)

// claims serialise work on one content. Between placing a content and counting it, no other goroutine may decide that
// it is unused. A claim is held across I/O; the mutex is not.
type claims struct {
	mu   sync.Mutex // guards held
	held map[string]chan struct{}
}

// acquire waits for the claim on a content. The returned function releases it.
func (c *claims) acquire(ctx context.Context, hash string) (release func(), err error) {
	for {
		c.mu.Lock()
		busy, ok := c.held[hash]
		if !ok {
			c.held[hash] = make(chan struct{})
			c.mu.Unlock()
			return func() { c.release(hash) }, nil
		}
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *claims) release(hash string) {
	c.mu.Lock()
	busy := c.held[hash]
	delete(c.held, hash)
	c.mu.Unlock()
	close(busy)
}

// place moves a complete temporary file to its content's name and makes that durable. If the content exists, place
// does nothing. It replaces a damaged content, which repairs all its records.
func (s *Store) place(tmp, hash string, size int64) error {
	if s.hasBlob(hash, size) {
		return nil
	}
	if err := ledger.SyncPath(tmp); err != nil {
		return diskError("storing the upload", err)
	}
	if err := os.Rename(tmp, s.blobPath(hash)); err != nil {
		return diskError("storing the upload", err)
	}
	if err := ledger.SyncPath(s.blobDir()); err != nil {
		return diskError("storing the upload", err)
	}
	return nil
}

func (s *Store) hasBlob(hash string, size int64) bool {
	fi, err := os.Lstat(s.blobPath(hash))
	return err == nil && fi.Mode().IsRegular() && fi.Size() == size
}

// dropContent removes a content that no record counts and returns how many bytes that freed. It finishes even if the
// caller has gone. On failure the content stays for the next Sweep.
func (s *Store) dropContent(ctx context.Context, hash string) int64 {
	_, freed, err := s.tryDropContent(context.WithoutCancel(ctx), hash)
	if err != nil {
		s.log.Warn("file store: content not removed, the next sweep tries again", "err", err)
	}
	return freed
}

func (s *Store) tryDropContent(ctx context.Context, hash string) (removed bool, freed int64, err error) {
	release, err := s.claims.acquire(ctx, hash)
	if err != nil {
		return false, 0, err
	}
	defer release()
	if needed, err := s.needed(hash); err != nil || needed {
		return false, 0, err
	}
	fi, err := os.Lstat(s.blobPath(hash))
	if errors.Is(err, os.ErrNotExist) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	if err := os.RemoveAll(s.blobPath(hash)); err != nil {
		return false, 0, err
	}
	return true, fi.Size(), nil
}

// needed reports whether any record counts this content.
func (s *Store) needed(hash string) (ok bool, err error) {
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		var n int
		ok, err = tx.Get(bucketBlobs, hash, &n)
		return err
	})
	return ok, err
}

// removeStrays removes contents that no record counts. It holds no more than a batch of
// names in memory and stops when ctx ends.
func (s *Store) removeStrays(ctx context.Context) (n int, freed int64, err error) {
	dir, err := os.Open(s.blobDir())
	if err != nil {
		return 0, 0, err
	}
	defer dir.Close()
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			removed, size, err := s.removeStray(ctx, name)
			if err != nil {
				return n, freed, err
			}
			if removed {
				n, freed = n+1, freed+size
			}
		}
		if errors.Is(err, io.EOF) {
			return n, freed, nil
		}
		if err != nil {
			return n, freed, err
		}
	}
	return n, freed, ctx.Err()
}

// removeStray checks without a claim first, since nearly every content is needed.
func (s *Store) removeStray(ctx context.Context, hash string) (bool, int64, error) {
	if needed, err := s.needed(hash); err != nil || needed {
		return false, 0, err
	}
	return s.tryDropContent(ctx, hash)
}
