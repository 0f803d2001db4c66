package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/proto"
	"berth/runtime/diskpool"
)

// A Source is a running daemon. All fields must be set.
type Source struct {
	Dir     string // data directory
	Version string
	Ledger  Ledger
	Pool    Pool
	Images  Images
}

// A Ledger has the records. Package ledger has one.
type Ledger interface {
	// CopyAsOf calls do while no update is committed, and writes the ledger as of that time to path.
	CopyAsOf(path string, do func() error) error
}

// A Pool has workspaces, layers and snapshots. Package diskpool has one.
type Pool interface {
	Hold() ([]diskpool.Tree, error)
	Send(before []diskpool.Tree, t diskpool.Tree, w io.Writer) error
	Release() error
	SizeBytes() int64
}

// Images are the images of containers. Package images has them.
type Images interface {
	SavedBytes(ctx context.Context) (int64, error)
	Save(ctx context.Context, w io.Writer) error
}

// pieceBytes is the size of pieces of what has no known size.
const pieceBytes = 4 << 20

// stageDir is the directory in the data directory with the links and the copy of the ledger, while a backup is made.
const stageDir = "backup-stage"

// excluded are names in the data directory that are in no backup: of this process, or made anew, or in other members.
var excluded = []string{stageDir, "builds", "config.json", "daemon.log", "lost+found", "runtime", "url", ImagesFile}

// A Taker makes backups of one daemon, one at a time.
type Taker struct {
	source Source
	busy   sync.Mutex // held while a backup is made
}

// Open returns a taker, and removes what a crash has left of a backup. The pool removes what is its own.
func Open(s Source) (*Taker, error) {
	if err := os.RemoveAll(filepath.Join(s.Dir, stageDir)); err != nil {
		return nil, fmt.Errorf("removing an unfinished backup: %w", err)
	}
	return &Taker{source: s}, nil
}

// Take writes a backup to w. Nothing is written if it cannot begin.
func (t *Taker) Take(ctx context.Context, w io.Writer) (err error) {
	const op = "back up"
	if !t.busy.TryLock() {
		return proto.Errorf(proto.Conflict, op, "backup", "a backup is being made already; wait for its end")
	}
	defer t.busy.Unlock()
	s := stage{Source: t.source, dir: filepath.Join(t.source.Dir, stageDir)}
	defer func() { err = errors.Join(err, s.remove()) }()
	if err := s.make(); err != nil {
		return s.fail(op, err)
	}
	size, err := t.source.Images.SavedBytes(ctx)
	if err != nil {
		return err
	}
	s.Bytes += size
	return s.write(ctx, w)
}

// A stage is what a backup is written from.
type stage struct {
	Source
	Manifest
	dir   string
	files []staged
}

// A staged file or directory is as it was at the moment of the backup.
type staged struct {
	path string // in the data directory
	info fs.FileInfo
}

func (s *stage) fail(op string, err error) error {
	switch {
	case errors.Is(err, diskpool.ErrNoSnapshots):
		return proto.Errorf(proto.Unsupported, op, "backup", "a running daemon can only be backed up if its disk pool "+
			"is a btrfs: %v. Stop the daemon, and copy its data directory with cp -a or tar", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return proto.Errorf(proto.QuotaExceeded, op, "backup", "the disk of the data directory has no room for a copy "+
			"of the records and the names of files; free some")
	case errors.Is(err, syscall.EXDEV):
		return proto.Errorf(proto.Unsupported, op, "backup", "a directory in the data directory is on another file "+
			"system; stop the daemon, and copy its data directory with cp -a or tar")
	}
	return err
}

// make makes the stage.
func (s *stage) make() error {
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	s.Format, s.Manifest.Version, s.PoolBytes = format, s.Source.Version, s.Pool.SizeBytes()
	records := filepath.Join(s.dir, ledgerName)
	err := s.Ledger.CopyAsOf(records, func() (err error) {
		s.MadeAt = time.Now().UTC()
		if s.Trees, err = s.Pool.Hold(); err == nil {
			err = s.link()
		}
		s.HeldMillis = time.Since(s.MadeAt).Milliseconds()
		return err
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(records)
	if err != nil {
		return err
	}
	s.files = append(s.files, staged{ledgerName, info}) // the last one: a directory without it is not a daemon's
	for _, f := range s.files {
		if f.info.Mode().IsRegular() {
			s.Bytes += f.info.Size()
		}
	}
	for _, t := range s.Trees {
		s.Bytes += t.Bytes
	}
	s.Files = len(s.files)
	return nil
}

// link links the files of the data directory into the stage. They are replaced as a whole or appended to, so a link and
// the size have a file as it is now.
func (s *stage) link() error {
	return filepath.WalkDir(s.Source.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // it was removed a moment ago
				return nil
			}
			return err
		}
		name, err := filepath.Rel(s.Source.Dir, path)
		if err != nil || name == "." {
			return err
		}
		if leftOut(name) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		to := filepath.Join(s.dir, dataDir, name)
		switch {
		case e.IsDir():
			err = os.MkdirAll(to, 0o700)
		case e.Type().IsRegular():
			if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
				err = os.Link(path, to)
			}
		default:
			return nil
		}
		var info fs.FileInfo
		if err == nil && e.IsDir() {
			info, err = e.Info()
		} else if err == nil {
			info, err = os.Lstat(to) // the path may be another file's by now
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			s.files = append(s.files, staged{name, info})
		}
		return err
	})
}

// leftOut reports whether a path in the data directory is in no backup.
func leftOut(name string) bool {
	return slices.Contains(excluded, name) || name == filepath.Join("files", "tmp") ||
		strings.HasPrefix(name, ledgerName) || strings.HasPrefix(name, ".config-")
}

// remove removes the stage and the copies in the pool.
func (s *stage) remove() error { return errors.Join(s.Pool.Release(), os.RemoveAll(s.dir)) }

// write writes the archive.
func (s *stage) write(ctx context.Context, w io.Writer) error {
	out := &writer{tar: tar.NewWriter(w), tally: tally{hash: sha256.New()}, at: s.MadeAt}
	if err := out.small(manifestName, mustMarshal(s.Manifest)); err != nil {
		return err
	}
	err := out.stream(ctx, imagesDir, func(ctx context.Context, w io.Writer) error { return s.Images.Save(ctx, w) })
	if err != nil {
		return fmt.Errorf("saving the images: %w", err)
	}
	for i, t := range s.Trees {
		err := out.stream(ctx, fmt.Sprintf("%s/%d", treesDir, t.Copy), func(_ context.Context, w io.Writer) error {
			return s.Pool.Send(s.Trees[:i], t, w)
		})
		if err != nil {
			return fmt.Errorf("sending %s: %w", t.Name, err)
		}
	}
	for _, f := range s.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		from := filepath.Join(s.dir, dataDir, f.path)
		if f.path == ledgerName {
			from = filepath.Join(s.dir, ledgerName)
		}
		if err := out.file(from, f); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	if err := out.small(endName, mustMarshal(out.sum())); err != nil {
		return err
	}
	return out.tar.Close()
}

// A writer writes members, and counts them.
type writer struct {
	tar *tar.Writer
	tally
	at time.Time
}

// small writes a member that is in memory.
func (w *writer) small(name string, content []byte) error {
	return w.member(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: w.at},
		bytes.NewReader(content))
}

// member writes a member of a known size. What r has beyond it is left.
func (w *writer) member(h *tar.Header, r io.Reader) error {
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	w.begin(h.Name, h.Size)
	_, err := io.CopyN(io.MultiWriter(w.tar, w.hash), r, h.Size)
	return err
}

// file writes a file or directory of the stage.
func (w *writer) file(from string, f staged) error {
	h, err := tar.FileInfoHeader(f.info, "")
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Format = dataDir+"/"+f.path, "", "", tar.FormatPAX
	if f.info.IsDir() {
		h.Name += "/"
		return w.member(h, bytes.NewReader(nil))
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return w.member(h, in)
}

// stream writes what do writes, in pieces below the directory dir.
func (w *writer) stream(ctx context.Context, dir string, do func(context.Context, io.Writer) error) error {
	ctx, cancel := context.WithCancel(ctx)
	r, pipe := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pipe.CloseWithError(do(ctx, pipe))
	}()
	defer func() { // if the archive cannot be written, do ends early
		cancel()
		r.Close()
		<-done
	}()
	buf := make([]byte, pieceBytes)
	for n := 0; ; n++ {
		size, err := io.ReadFull(r, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if size > 0 || n == 0 {
			if werr := w.small(fmt.Sprintf("%s/%08d", dir, n), buf[:size]); werr != nil {
				return werr
			}
		}
		if err != nil {
			return nil
		}
	}
}
