// Package execstore keeps the output of commands: in memory while there is room, then in files.
//
// In scope: the files below one directory, the limit of all files together, and the memory that readers of output on
// disk share. Out of scope: when output moves to disk or is forgotten, which package session, the only caller, decides,
// and the form of output in memory (guest/output).
package execstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"berth/guest/output"
	"berth/proto"
	"berth/state/durable"
)

// Config is what Open needs.
type Config struct {
	Dir    string // made if missing; a file there is the output of one command, as output.Save writes it
	Disk   int64  // limit of all files together, in bytes
	Memory int64  // limit of output on disk that readers have in memory again, in bytes
	Log    *slog.Logger
}

// A Store has the output of all commands. It is safe for concurrent use.
type Store struct {
	cfg    Config
	onDisk atomic.Int64 // bytes of output in files
	reread atomic.Int64 // bytes of that output that is in memory again
}

// Open opens the store.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the output directory: %w", err)
	}
	return &Store{cfg: cfg}, nil
}

// OnDisk returns how many bytes of output count as being in files.
func (st *Store) OnDisk() int64 { return st.onDisk.Load() }

// RemoveUnknown removes the files of commands that are not known, which a crash can leave.
func (st *Store) RemoveUnknown(known map[string]bool) error {
	entries, err := os.ReadDir(st.cfg.Dir)
	if err != nil {
		return err
	}
	for _, f := range entries {
		if !known[f.Name()] {
			err = errors.Join(err, os.Remove(st.path(f.Name())))
		}
	}
	return err
}

// Remove removes the file of a command, if there is one.
func (st *Store) Remove(id string) error {
	if err := os.Remove(st.path(id)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (st *Store) path(id string) string { return filepath.Join(st.cfg.Dir, id) }

// An Output is the output of one command. Output that fits neither in memory nor on disk is dropped and shows as a gap.
type Output struct {
	*output.Output // what is in memory

	store *Store
	id    string

	keeping   sync.Mutex // held while the output is moved to disk or removed from it; locked before mu
	forgotten bool       // nothing needs the output any more; guarded by keeping

	mu      sync.Mutex // guards the fields below
	saved   int64      // bytes on disk
	spooled bool       // the output is on disk only
	again   *reread    // the output while it is in memory again for readers; nil: no reader
}

// A reread is output on disk that is in memory again, once, while it has readers.
type reread struct {
	load  func() *output.Output
	size  int64 // guarded by Output.mu, as is users
	users int
}

// New returns the empty output of a command that is about to start. See output.New for limit and budget.
func (st *Store) New(id string, limit int64, budget *output.Budget) *Output {
	return &Output{Output: output.New(limit, budget), store: st, id: id}
}

// Load returns the output of a command that ended under an earlier daemon. stdout and stderr are the bytes that the
// command wrote. Output that is not on disk shows as a gap.
func (st *Store) Load(id string, stdout, stderr int64) *Output {
	o := &Output{store: st, id: id, spooled: true}
	o.Output, _ = output.Load(nil, stdout, stderr, nil)
	if fi, err := os.Stat(st.path(id)); err == nil {
		o.saved = fi.Size()
		st.onDisk.Add(o.saved)
	}
	return o
}

// Open returns the output for one reader, who calls done at the end. It fails with TooMany if slow readers of other
// output on disk use up the memory.
func (o *Output) Open(c *output.Cursor) (out *output.Output, done func(), err error) {
	o.mu.Lock()
	if !o.spooled {
		defer o.mu.Unlock()
		o.Attach(c) // before it can be moved
		return o.Output, func() { o.Detach(c) }, nil
	}
	if o.again == nil {
		if o.again, err = o.newReread(); err != nil {
			o.mu.Unlock()
			return nil, nil, err
		}
	}
	r := o.again
	r.users++
	o.mu.Unlock()
	return r.load(), func() { o.leave(r) }, nil
}

// newReread takes memory for the whole output. A single one always gets it. Called with mu held.
func (o *Output) newReread() (*reread, error) {
	st, size := o.store, o.saved
	if all := st.reread.Add(size); all > st.cfg.Memory && all > size {
		st.reread.Add(-size)
		return nil, proto.Errorf(proto.TooMany, "", o.id,
			"too much kept output is being read at once; try again").After(time.Second)
	}
	r := &reread{size: size}
	r.load = sync.OnceValue(func() *output.Output {
		out := o.Read()
		o.mu.Lock()
		defer o.mu.Unlock()
		// the size of an earlier daemon's file does not tell how many pieces it has
		st.reread.Add(out.Kept() - r.size)
		r.size = out.Kept()
		return out
	})
	return r, nil
}

// leave frees the memory of a reread when its last reader leaves.
func (o *Output) leave(r *reread) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.users--; r.users == 0 {
		o.again = nil
		o.store.reread.Add(-r.size)
	}
}

// Read reads the output of an ended command from its file. Missing output shows as a gap.
func (o *Output) Read() *output.Output {
	stdout, stderr := o.Totals()
	f, err := os.Open(o.store.path(o.id))
	if err != nil {
		out, _ := output.Load(nil, stdout, stderr, nil)
		return out
	}
	defer f.Close()
	out, err := output.Load(f, stdout, stderr, nil)
	if err != nil {
		o.store.cfg.Log.Warn("reading the kept output of an exec", "exec", o.id, "error", err)
	}
	return out
}

// Spool saves the output of an ended command, if it is not saved yet and the limit of all files allows it.
func (o *Output) Spool() error {
	o.keeping.Lock()
	defer o.keeping.Unlock()
	return o.spool()
}

// spool does the work of Spool. Called with keeping held.
func (o *Output) spool() error {
	o.mu.Lock()
	saved, size := o.saved, o.Kept()
	o.mu.Unlock()
	if saved > 0 || size == 0 || o.forgotten {
		return nil
	}
	st := o.store
	if st.onDisk.Add(size) > st.cfg.Disk {
		st.onDisk.Add(-size)
		return errors.New("the files of kept output are as large as they may be together")
	}
	if err := durable.WriteFile(st.path(o.id), 0o600, o.Save); err != nil {
		st.onDisk.Add(-size)
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.saved = size
	return nil
}

// MoveToDisk moves the output of an ended command from memory to disk and reports whether it did. Output with readers
// stays in memory as well. If the output does not fit on disk, MoveToDisk calls full; no other move or Discard runs
// meanwhile.
func (o *Output) MoveToDisk(full func(error)) (moved bool) {
	o.keeping.Lock()
	defer o.keeping.Unlock()
	if o.forgotten { // forgotten meanwhile
		return false
	}
	if err := o.spool(); err != nil {
		full(err)
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.Followed() {
		return false
	}
	o.spooled = true
	o.Drop()
	return true
}

// Discard removes the output from disk and memory for good.
func (o *Output) Discard() error {
	o.keeping.Lock()
	defer o.keeping.Unlock()
	o.forgotten = true
	o.Forget()
	o.mu.Lock()
	saved := o.saved
	o.mu.Unlock()
	if saved == 0 {
		return nil
	}
	if err := o.store.Remove(o.id); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.store.onDisk.Add(-saved)
	o.saved = 0
	return nil
}
