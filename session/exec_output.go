package session

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/guest/output"
	"berth/proto"
)

// clearOutput removes kept output of forgotten execs, which a crash can leave.
func (ss *Sessions) clearOutput() error {
	dir := filepath.Join(ss.cfg.Dir, outputDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, s := range ss.byID {
		for _, e := range s.Execs() {
			known[e.id] = true
		}
	}
	for _, f := range entries {
		if !known[f.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
	return err
}

// removeUnrecordedOutput removes output that was kept before a crash prevented the record of the end. No record
// describes it, and the guest still has the output of what runs.
func (s *Session) removeUnrecordedOutput(r execRecord) {
	e := Exec{s: s, id: r.Exec.ID}
	if err := e.removeOutput(); err != nil {
		s.core.cfg.Log.Warn("removing output of an exec whose end is not known", "exec", e.id, "error", err)
	}
}

// Output of ended commands stays in memory while there is room. Then it moves to files below Config.Dir, from which
// readers get it. Output that fits in neither is dropped and shows as a gap.

// outputDir is below Config.Dir. A file there is the output of one exec, as output.Save writes it.
const outputDir = "output"

func (e *Exec) outputPath() string {
	return filepath.Join(e.s.core.cfg.Dir, outputDir, e.id)
}

// saveOutput writes the output to its file, whole or not at all.
func (e *Exec) saveOutput() (err error) {
	f, err := os.CreateTemp(filepath.Dir(e.outputPath()), "tmp-")
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := errors.Join(e.out.Save(f), f.Sync()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), e.outputPath()); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(e.outputPath()))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync() // else a power cut could take the name and leave a record that promises output
}

// removeOutput removes the file of saveOutput. Called with keeping held, or before others have the exec.
func (e *Exec) removeOutput() error {
	err := os.Remove(e.outputPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.s.core.spooled.Add(-e.saved)
	e.saved = 0
	return nil
}

// A reread is output on disk that is in memory again, once, while it has followers.
type reread struct {
	load  func() *output.Output
	size  int64 // guarded by Exec.mu, as is users
	users int
}

// written returns the exec's output for one reader, who calls done at the end. It fails with TooMany if slow readers
// of other output on disk use up the memory.
func (e *Exec) written(c *Cursor) (out *output.Output, done func(), err error) {
	e.mu.Lock()
	if !e.spooled {
		defer e.mu.Unlock()
		e.out.Attach(c) // before it can be moved
		return e.out, func() { e.out.Detach(c) }, nil
	}
	if e.again == nil {
		if e.again, err = e.newReread(); err != nil {
			e.mu.Unlock()
			return nil, nil, err
		}
	}
	r := e.again
	r.users++
	e.mu.Unlock()
	return r.load(), func() { e.leave(r) }, nil
}

// newReread takes memory for the whole output. A single one always gets it. Called with mu held.
func (e *Exec) newReread() (*reread, error) {
	core, info, size := e.s.core, e.info, e.saved
	if all := core.reread.Add(size); all > core.cfg.OutputMemory/2 && all > size {
		core.reread.Add(-size)
		return nil, proto.Errorf(proto.TooMany, "", e.id,
			"too much kept output is being read at once; try again").After(time.Second)
	}
	r := &reread{size: size}
	r.load = sync.OnceValue(func() *output.Output {
		out := e.readOutput(info)
		e.mu.Lock()
		defer e.mu.Unlock()
		// the size of an earlier daemon's file does not tell how many pieces it has
		core.reread.Add(out.Kept() - r.size)
		r.size = out.Kept()
		return out
	})
	return r, nil
}

// leave frees the memory of a reread when its last reader leaves.
func (e *Exec) leave(r *reread) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.users--; r.users == 0 {
		e.again = nil
		e.s.core.reread.Add(-r.size)
	}
}

// readOutput reads the file of saveOutput. Missing output shows as a gap.
func (e *Exec) readOutput(info proto.Exec) *output.Output {
	f, err := os.Open(e.outputPath())
	if err != nil {
		out, _ := output.Load(nil, info.StdoutBytes, info.StderrBytes, nil)
		return out
	}
	defer f.Close()
	out, err := output.Load(f, info.StdoutBytes, info.StderrBytes, nil)
	if err != nil {
		e.s.core.cfg.Log.Warn("reading the kept output of an exec", "exec", e.id, "error", err)
	}
	return out
}

// spool saves the output of an ended exec, if it is not saved yet and the disk limit of all output allows it.
func (e *Exec) spool() error {
	e.keeping.Lock()
	defer e.keeping.Unlock()
	return e.spoolLocked()
}

// spoolLocked does the work of spool. Called with keeping held.
func (e *Exec) spoolLocked() error {
	e.mu.Lock()
	saved, size := e.saved, e.out.Kept()
	e.mu.Unlock()
	if saved > 0 || size == 0 || e.forgotten {
		return nil
	}
	core := e.s.core
	if core.spooled.Add(size) > core.cfg.OutputDisk {
		core.spooled.Add(-size)
		return errors.New("the files of kept output are as large as they may be together")
	}
	if err := e.saveOutput(); err != nil {
		core.spooled.Add(-size)
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.saved = size
	return nil
}

// moveOut moves an ended exec's output from memory to disk. It stays in memory while it has followers.
func (e *Exec) moveOut() {
	e.keeping.Lock()
	defer e.keeping.Unlock()
	if e.forgotten { // forgotten meanwhile
		return
	}
	if err := e.spoolLocked(); err != nil {
		e.s.core.cfg.Log.Warn("output does not fit on disk and is dropped", "exec", e.id, "error", err)
		e.dropOutput()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.out.Followed() {
		return
	}
	e.spooled, e.result = true, nil
	e.out.Drop()
}

// discard removes an exec's output from disk and memory for good.
func (e *Exec) discard() error {
	e.keeping.Lock()
	defer e.keeping.Unlock()
	e.forgotten = true
	e.out.Forget()
	e.mu.Lock()
	saved := e.saved > 0
	e.mu.Unlock()
	if !saved {
		return nil
	}
	return e.removeOutput()
}

// freeMemory moves output to disk when memory gets short. It moves the output of the exec that is about to end at
// once. One goroutine moves the output of earlier execs, so no command waits for the output of others.
func (ss *Sessions) freeMemory(ending *Exec) {
	if ss.memory.Used() < ss.cfg.OutputMemory/4 {
		return
	}
	ending.moveOut()
	if ss.freeingMemory.Swap(true) {
		return
	}
	err := ss.goTracked(nil, func() {
		defer ss.freeingMemory.Store(false)
		ss.makeRoom()
	})
	if err != nil { // the daemon is closing
		ss.freeingMemory.Store(false)
	}
}

// makeRoom moves output of ended execs to disk until half of freeMemory's threshold is free.
func (ss *Sessions) makeRoom() {
	ss.mu.RLock()
	all := ss.snapshot()
	ss.mu.RUnlock()
	for _, s := range all {
		for _, e := range s.Execs() {
			if ss.ctx.Err() != nil || ss.memory.Used() < ss.cfg.OutputMemory/8 {
				return
			}
			if e.hasEnded() {
				e.moveOut()
			}
		}
		s.recountKept()
	}
}
