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

// clearOutput removes the kept output of execs that nobody remembers, as a crash leaves.
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

// removeUnrecordedOutput removes the output of an exec that was kept before its end was written down, which a crash
// prevented: its record says nothing of what is in there, and what still runs is asked anew.
func (s *Session) removeUnrecordedOutput(r execRecord) {
	e := Exec{s: s, id: r.Exec.ID}
	if err := e.removeOutput(); err != nil {
		s.core.cfg.Log.Warn("removing output of an exec whose end is not known", "exec", e.id, "error", err)
	}
}

// Output of commands that ended is in memory while there is room, and then in files below Config.Dir, from where
// it is read when somebody asks. What fits nowhere is dropped, which shows as a gap.

// outputDir is below Config.Dir; a file there is the output of one exec, as output.Save writes it.
const outputDir = "output"

func (e *Exec) outputPath() string {
	return filepath.Join(e.s.core.cfg.Dir, outputDir, e.id)
}

// saveOutput keeps the output for after a restart. The file appears whole or not at all.
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
	return dir.Sync() // or a power cut could take the name, and leave a record that promises output
}

// removeOutput drops what saveOutput kept. Called with keeping held, or where nobody else has the exec.
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

// A reread is output that was on disk alone and is in memory again while somebody follows it: once, however many they
// are.
type reread struct {
	load  func() *output.Output
	size  int64 // guarded by Exec.mu, as is users
	users int
}

// written is what the exec wrote, for one reader; done is called when that has read. It fails with TooMany where
// others read so much of what is on disk, and so slowly, that there is no memory for more.
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

// newReread takes the memory for all of the output. One alone always gets it. Called with mu held.
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
		// of a file that an earlier daemon wrote, the size does not tell how many pieces are in it
		core.reread.Add(out.Kept() - r.size)
		r.size = out.Kept()
		return out
	})
	return r, nil
}

// leave gives the memory of a reread back once nobody reads it.
func (e *Exec) leave(r *reread) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.users--; r.users == 0 {
		e.again = nil
		e.s.core.reread.Add(-r.size)
	}
}

// readOutput reads what saveOutput kept. Output that is not there any more shows as a gap.
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

// spool saves the output of an exec that ended, if it is not saved yet and the files of all together leave room.
func (e *Exec) spool() error {
	e.keeping.Lock()
	defer e.keeping.Unlock()
	return e.spoolLocked()
}

// spoolLocked is spool. Called with keeping held.
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

// moveOut gives back the memory of an ended exec's output, which is on disk from then on. It stays while somebody
// reads it.
func (e *Exec) moveOut() {
	e.keeping.Lock()
	defer e.keeping.Unlock()
	if e.forgotten { // by somebody else, meanwhile
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

// discard gives back all that is kept of an exec's output, on disk and in memory, for good.
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

// freeMemory moves the output of an exec that is about to have ended to disk when memory gets short, and has that of
// those which ended before follow: one goroutine at a time, since whose command ends waits for none but its own.
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
	if err != nil { // the daemon ends
		ss.freeingMemory.Store(false)
	}
}

// makeRoom moves output of ended execs to disk until half of what relieve waits for is free.
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
