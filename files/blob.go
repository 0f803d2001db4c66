package files

import (
	"context"
	"errors"
	"io"
	"os"

	"berth/state/ledger"
)

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
	release, err := s.contents.Lock(ctx, hash)
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
			needed, err := s.needed(name) // checked without the lock first, since nearly every content is needed
			if err != nil {
				return n, freed, err
			}
			if needed {
				continue
			}
			removed, size, err := s.tryDropContent(ctx, name)
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
