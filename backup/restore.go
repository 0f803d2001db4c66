package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"berth/runtime/diskpool"
	"berth/state/durable"
)

// Restore makes a data directory of an archive. dir must be empty, or missing. If it fails, dir is empty again.
func Restore(ctx context.Context, r io.Reader, dir string, progress func(done, total int64), log *slog.Logger) (
	m Manifest, err error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return m, err
	}
	found, err := contents(dir)
	if err != nil {
		return m, err
	}
	if len(found) > 0 {
		return m, fmt.Errorf("%s is not empty: it has %s; give another directory, or move what is in it away", dir,
			found[0])
	}
	s := &restoration{ctx: ctx, dir: dir, log: log}
	err = Read(ctx, r, progress, Handler{Manifest: s.begin, Images: s.images, Tree: s.tree, File: s.file})
	if err = s.finish(err); err != nil {
		return m, errors.Join(err, empty(dir))
	}
	return s.m, nil
}

// contents lists what is in a directory, besides what a new file system has.
func contents(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "lost+found" {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// empty removes what is in a directory.
func empty(dir string) error {
	names, err := contents(dir)
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
	}
	return err
}

// A restoration is a data directory that is being made.
type restoration struct {
	ctx      context.Context
	dir      string
	log      *slog.Logger
	m        Manifest
	pool     *diskpool.Pool
	received map[int]bool
	times    []modified // of directories, which later files change
	ledger   string     // what becomes the ledger at the end
}

type modified struct {
	path string
	at   time.Time
}

// begin makes the pool.
func (s *restoration) begin(m Manifest) (err error) {
	s.m, s.received = m, make(map[int]bool)
	runtime := filepath.Join(s.dir, "runtime")
	if err := os.Mkdir(runtime, 0o711); err != nil {
		return err
	}
	if s.pool, err = diskpool.Open(runtime, m.PoolBytes, s.log); err != nil {
		return fmt.Errorf("making the disk pool: %w", err)
	}
	if s.pool.Kind == diskpool.Plain {
		return fmt.Errorf("there can be no disk pool: %s", s.pool.Why)
	}
	return nil
}

func (s *restoration) images(r io.Reader) error {
	return writeFile(filepath.Join(s.dir, ImagesFile), 0o600, r)
}

func (s *restoration) tree(number string, r io.Reader) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return notWhole(err)
	}
	for _, t := range s.m.Trees {
		if t.Copy == n && filepath.IsLocal(t.Name) {
			s.received[n] = true
			return s.pool.Receive(s.ctx, t, r)
		}
	}
	return fmt.Errorf("%w: tree %d is not in its list", ErrNotWhole, n)
}

func (s *restoration) file(h *tar.Header, r io.Reader) error {
	if !filepath.IsLocal(h.Name) {
		return fmt.Errorf("%w: it has a file with the name %q", ErrNotWhole, h.Name)
	}
	path := filepath.Join(s.dir, h.Name)
	if h.Name == ledgerName {
		path += ".restored"
		s.ledger = path
	}
	mode := h.FileInfo().Mode().Perm()
	if h.Gid != 0 { // here it may be the ID of another group; the daemon opens its key to its group again
		mode &^= 0o070
	}
	if h.Typeflag == tar.TypeDir {
		s.times = append(s.times, modified{path, h.ModTime})
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
	} else if err := writeFile(path, mode, r); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return os.Chtimes(path, h.ModTime, h.ModTime)
}

// writeFile writes a new file.
func writeFile(path string, mode fs.FileMode, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}

// finish completes the directory, unless something has failed, and closes the pool. The ledger gets its name last: a
// directory without one is not a daemon's.
func (s *restoration) finish(err error) error {
	if err == nil && len(s.received) != len(s.m.Trees) {
		err = fmt.Errorf("%w: %d of %d trees are missing", ErrNotWhole, len(s.m.Trees)-len(s.received), len(s.m.Trees))
	}
	if err == nil && s.ledger == "" {
		err = fmt.Errorf("%w: it has no ledger", ErrNotWhole)
	}
	if err == nil {
		err = s.pool.Settle(s.m.Trees)
	}
	if err != nil && s.pool != nil {
		err = errors.Join(err, s.pool.Release())
	}
	if s.pool != nil {
		err = errors.Join(err, s.pool.Close())
	}
	if err != nil {
		return err
	}
	for _, d := range s.times {
		if err := os.Chtimes(d.path, d.at, d.at); err != nil {
			return err
		}
	}
	if err := os.Rename(s.ledger, filepath.Join(s.dir, ledgerName)); err != nil {
		return err
	}
	return durable.Sync(s.dir)
}
