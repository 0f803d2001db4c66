package guest

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// Most commands put nothing into their output directory. To make one for each and to remove it again was a twentieth
// of what a small command takes, so one that was not touched waits for the next command: under the name that it has,
// which for that reason the guest gives. See docs/decisions/0047.

// outputVariable tells a command its output directory where the guest names it.
const outputVariable = "OUTPUT_DIR"

// A spare output directory waits for as long as spareOutput, and there are no more than maxSpareOutputs.
const (
	spareOutput     = time.Second
	maxSpareOutputs = 8
)

// An outputDir is a command's output directory.
type outputDir struct {
	path  string // "" if it has none
	named bool   // by the guest, so that the next command may have it if it is left as it was made
	was   look
	sure  bool // it was seen to be empty so long after was that it looks different after any change since
	above look // the directory that it is in, where that was seen to hold nothing else, and so as well
}

// tick is more than the time during which the kernel may give two changes of a file the same time.
const tick = 20 * time.Millisecond

// settled reports whether a file looks different from now on after any change.
func (l look) settled() bool { return time.Since(time.Unix(0, l.ctime.Nano())) > tick }

// asksForName reports whether the guest is to name the output directory, in the one that ends with a slash.
func (cmd *Command) asksForName() bool { return strings.HasSuffix(cmd.Output, "/") }

// An output directory's name consists of so many bytes, in hex: of a guest, and the rest of one directory.
const (
	outputGuestBytes = 2
	outputNameBytes  = 8
)

// newName makes one.
func (o *spareOutputs) newName() string {
	var b [outputNameBytes - outputGuestBytes]byte
	_, _ = rand.Read(b[:])
	return o.own + hex.EncodeToString(b[:])
}

// isOutputName reports whether newName may have made a name.
func isOutputName(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == outputNameBytes && s == strings.ToLower(s)
}

// nameOutput is the command's output directory, which need not be there yet: its environment tells it. The caller
// acts as its user.
func (s *Server) nameOutput(id identity, cmd *Command) outputDir {
	switch {
	case cmd.Output == "":
		return outputDir{}
	case !cmd.asksForName():
		return outputDir{path: s.absolute(cmd.Output)}
	}
	parent := s.absolute(cmd.Output)
	if out, ok := s.outputs.take(parent, id); ok {
		return out
	}
	return outputDir{path: filepath.Join(parent, s.outputs.newName()), named: true}
}

// makeOutput makes the plan's output directory, unless it is there.
func (s *Server) makeOutput(p *plan) error {
	out := &p.output
	if out.path == "" || out.waited() {
		return nil
	}
	if err := s.freshDir(p.id, out.path); err != nil {
		return err
	}
	// root is not to follow links, so no path tells where its directories are
	if !out.named || p.id.name == proto.UserRoot {
		return nil
	}
	s.outputs.tidy(filepath.Dir(out.path))
	var st unix.Stat_t
	if unix.Lstat(out.path, &st) == nil {
		out.was = lookOf(&st)
	}
	return nil
}

// waited reports whether the directory can be told from others, and so may wait for a command, or has done so.
func (o *outputDir) waited() bool { return o.was.ino != 0 }

// drop removes one that has waited, for a command that cannot be run.
func (o *outputDir) drop() {
	if o.waited() {
		_ = unix.Rmdir(o.path)
	}
}

// A parting is what is done with an output directory that is empty at the end of its command, by whoever walks past it.
type parting struct {
	path  string     // "" once that was seen to
	spare *outputDir // which may wait for the next command if it was not touched; nil: it is to go
	fate  fate
}

// A fate is what became of it.
type fate int

const (
	stays fate = iota
	gone
	waits
)

// pass is part for the directory above it, and sees to it without opening either where nothing was changed.
func (p *parting) pass(at int, name string) bool {
	o := p.spare
	if o == nil || !o.sure || !o.above.is(at, name) || !o.was.is(at, name+"/"+filepath.Base(o.path)) {
		return false
	}
	p.path, p.fate = "", waits
	return true
}

// part sees to an entry of an open directory, one of so many, and reports whether it is to be passed over. Who may
// not do that is told nothing of it: there are others who may.
func (p *parting) part(at int, name string, of int) bool {
	if p.spare != nil && p.spare.untouched(at, name) {
		p.path, p.fate = "", waits
		var st unix.Stat_t
		if p.spare.above = (look{}); of == 1 && unix.Fstat(at, &st) == nil && lookOf(&st).settled() {
			p.spare.above = lookOf(&st)
		}
		return true
	}
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if err == nil || err == unix.ENOTEMPTY {
		p.path = ""
	}
	if err == nil {
		p.fate = gone
	}
	return err == nil
}

// untouched reports whether an entry of an open directory is the output directory as it was made, and empty.
func (o *outputDir) untouched(at int, name string) bool {
	d, err := openEntry(at, name)
	if err != nil {
		return false
	}
	defer unix.Close(d)
	settled := o.was.settled()
	var buf [512]byte
	held, err := readEntries(d, buf[:], 1)
	if err != nil || len(held) > 0 {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(d, &st) != nil || lookOf(&st) != o.was {
		return false
	}
	o.sure = settled
	return true
}

// spareOutputs are output directories that wait for a command.
type spareOutputs struct {
	own string // how the names that this guest makes begin

	mu    sync.Mutex
	by    map[spareKey]spareDir
	known map[string]bool // where this guest has named some
	timer *time.Timer
}

// A spareKey says for whom one is: a user, in one directory.
type spareKey struct{ parent, user string }

type spareDir struct {
	outputDir
	id identity
}

func newSpareOutputs() *spareOutputs {
	var b [outputGuestBytes]byte
	_, _ = rand.Read(b[:])
	return &spareOutputs{own: hex.EncodeToString(b[:]), by: map[spareKey]spareDir{}, known: map[string]bool{}}
}

// take gives away the one that waits in a directory. The caller acts as its user.
func (o *spareOutputs) take(parent string, id identity) (out outputDir, ok bool) {
	o.mu.Lock()
	k := spareKey{parent, id.name}
	have, ok := o.by[k]
	delete(o.by, k)
	o.mu.Unlock()
	switch {
	case !ok:
		return outputDir{}, false
	case have.sure && have.was.is(unix.AT_FDCWD, have.path), !have.sure && have.untouched(unix.AT_FDCWD, have.path):
		return have.outputDir, true
	}
	return outputDir{}, false // somebody has touched it, and it stays as it is
}

// put keeps one for the next command, or reports that there is no room for it.
func (o *spareOutputs) put(id identity, out outputDir) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := spareKey{filepath.Dir(out.path), id.name}
	if _, full := o.by[k]; full || len(o.by) == maxSpareOutputs {
		return false
	}
	o.by[k] = spareDir{out, id}
	if o.timer == nil {
		o.timer = time.AfterFunc(spareOutput, o.clear)
	} else {
		o.timer.Reset(spareOutput)
	}
	return true
}

// clear removes all that wait: nobody but commands finds one.
func (o *spareOutputs) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, have := range o.by {
		delete(o.by, k)
		_ = have.id.do(func() error { return unix.Rmdir(have.path) })
	}
}

// maxKnownOutputs bounds what is remembered of where there are some; a little is done twice where it is too few.
const maxKnownOutputs = 1000

// tidy removes what a guest that was killed has left waiting, where this one has just made its first. What this one
// made may be a running command's. The caller acts as the user.
func (o *spareOutputs) tidy(parent string) {
	o.mu.Lock()
	known := o.known[parent]
	if len(o.known) >= maxKnownOutputs {
		clear(o.known)
	}
	o.known[parent] = true
	o.mu.Unlock()
	if known {
		return
	}
	d, err := os.Open(parent)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(sightEntries)
	for _, name := range names {
		if isOutputName(name) && !strings.HasPrefix(name, o.own) {
			_ = unix.Rmdir(filepath.Join(parent, name)) // if it is empty
		}
	}
}
