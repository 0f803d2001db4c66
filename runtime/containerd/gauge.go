package containerd

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"berth/session"
)

// A gauge is the kernel's files about one sandbox, kept open: they are read for every command, and to open them anew
// takes five times as long as to read them. A cgroup's file cannot be read when that is gone, so a gauge never shows
// another sandbox's numbers.
type gauge struct {
	workspace string

	mu          sync.Mutex // held to read and to close: a number that is closed may be another file's at once
	closed      bool
	oom, forks  *tally
	work, layer *quotaGauge
}

// A quotaGauge is the files of a qgroup.
type quotaGauge struct {
	none                  bool // there are no quotas here
	dir                   string
	limit, used, reserved *page
}

// maxGauges bounds how many sandboxes' files are open, by some eight for each.
const maxGauges = 128

// gauges are those of the sandboxes that run commands, by their names. The zero value holds none.
type gauges struct {
	mu sync.Mutex
	of map[string]*gauge
}

// read reads the gauge of a sandbox, which it opens if it is not there, or is one of what was there before.
func (gs *gauges) read(sandbox, workspace string, open func() *gauge) session.Reading {
	gs.mu.Lock()
	g := gs.of[sandbox]
	gs.mu.Unlock()
	if g != nil && g.workspace == workspace {
		if reading, ok := g.read(); ok {
			return reading
		}
	}
	g = open()
	reading, ok := g.read()
	if !ok || !g.whole() { // it is about to go, or something could not be opened that can be the next time
		g.close()
		return reading
	}
	gs.keep(sandbox, g)
	return reading
}

// keep keeps a gauge in place of the last one, and makes room for it.
func (gs *gauges) keep(sandbox string, g *gauge) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.dropLocked(sandbox)
	for other := range gs.of {
		if len(gs.of) < maxGauges {
			break
		}
		gs.dropLocked(other)
	}
	if gs.of == nil {
		gs.of = map[string]*gauge{}
	}
	gs.of[sandbox] = g
}

// drop closes the files of a sandbox.
func (gs *gauges) drop(sandbox string) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.dropLocked(sandbox)
}

// close closes those of all.
func (gs *gauges) close() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for sandbox := range gs.of {
		gs.dropLocked(sandbox)
	}
}

func (gs *gauges) dropLocked(sandbox string) {
	if g := gs.of[sandbox]; g != nil {
		delete(gs.of, sandbox)
		g.close()
	}
}

// openGauge opens what there is about a sandbox over a workspace.
func openGauge(d *disk, sandbox, workspace string) *gauge {
	return &gauge{
		workspace: workspace,
		oom:       openTally(sandbox, "oom_kill", "memory/%s/memory.oom_control", "%s/memory.events"),
		forks:     openTally(sandbox, "max", "pids/%s/pids.events", "%s/pids.events"),
		work:      quotaOf(d, d.workspacePath(workspace)),
		layer:     quotaOf(d, d.layerPath(sandbox)),
	}
}

// A tally is an open file with the line "key N". Nil is one that is not there.
type tally struct {
	*page
	key string
}

// openTally opens the first of the files that has the line.
func openTally(sandbox, key string, files ...string) *tally {
	for _, file := range files {
		p := openPage(filepath.Join(cgroupRoot, fmt.Sprintf(file, groupParent+"/"+sandbox)))
		if _, ok := tallyIn(p.read(), key); ok {
			return &tally{p, key}
		}
		p.close()
	}
	return nil
}

// quotaOf opens the files of the subvolume path's qgroup.
func quotaOf(d *disk, path string) *quotaGauge {
	if !d.quota {
		return &quotaGauge{none: true}
	}
	id, err := subvolumeID(path)
	if err != nil {
		return &quotaGauge{}
	}
	dir := fmt.Sprintf("/sys/fs/btrfs/%s/qgroups/0_%d/", d.fsid(), id)
	return &quotaGauge{dir: dir, limit: openPage(dir + "max_referenced"), used: openPage(dir + "referenced"),
		reserved: openPage(dir + "rsv_data")}
}

// whole reports whether all there is to read is open.
func (g *gauge) whole() bool {
	return g.oom != nil && g.forks != nil && g.work.whole() && g.layer.whole()
}

// read shows all but the pool. It reports false where something that could be opened cannot be read any more.
func (g *gauge) read() (reading session.Reading, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	reading = session.Reading{OOMKills: -1, PIDRefusals: -1}
	if g.closed {
		return reading, false
	}
	ok = g.oom.readInto(&reading.OOMKills)
	ok = g.forks.readInto(&reading.PIDRefusals) && ok
	ok = g.work.read(&reading.Workspace) && ok
	return reading, g.layer.read(&reading.Layer) && ok
}

func (g *gauge) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.oom.close()
	g.forks.close()
	g.work.close()
	g.layer.close()
}

// readInto reads the number into n.
func (t *tally) readInto(n *int64) bool {
	if t == nil {
		return true
	}
	v, ok := tallyIn(t.read(), t.key)
	if ok {
		*n = v
	}
	return ok
}

func (t *tally) close() {
	if t != nil {
		t.page.close()
	}
}

// metaBytes is how little must be left, in bytes, for what is reserved for records of files to count: where more is,
// the kernel writes out what those are for rather than refuse anything.
const metaBytes = 512 << 20

// read shows what the subvolume uses of its limit. The kernel counts what is written in its qgroup only when
// it commits, so what is reserved until then counts too; both are in sysfs since Linux 5.9.
func (q *quotaGauge) read(space *session.Space) bool {
	if q.limit == nil {
		return true
	}
	limit, ok := q.limit.number()
	if !ok {
		return false
	}
	used, ok := q.used.number()
	reserved, _ := q.reserved.number()
	if used += reserved; limit-used < metaBytes {
		for _, name := range []string{"rsv_meta_pertrans", "rsv_meta_prealloc"} {
			p := openPage(q.dir + name)
			n, _ := p.number()
			used += n
			p.close()
		}
	}
	if ok {
		*space = session.Space{Used: used, Limit: limit}
	}
	return ok
}

func (q *quotaGauge) whole() bool {
	return q.none || q.limit != nil && q.used != nil && q.reserved != nil
}

func (q *quotaGauge) close() {
	q.limit.close()
	q.used.close()
	q.reserved.close()
}

// A page is an open file of the kernel's own, which gives all it has at once. Nil is one that is not there. It is
// none of package os: those are made for files that have to be waited for, at twice the system calls.
type page struct {
	fd  int
	buf [pageBytes]byte
}

// pageBytes is more than any of the files read here has.
const pageBytes = 512

func openPage(path string) *page {
	fd, err := openAgain(path, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil
	}
	return &page{fd: fd}
}

// read is what the file has now; nothing if it cannot be read.
func (p *page) read() []byte {
	if p == nil {
		return nil
	}
	n, err := unix.Pread(p.fd, p.buf[:], 0)
	for err == unix.EINTR {
		n, err = unix.Pread(p.fd, p.buf[:], 0)
	}
	if err != nil {
		return nil
	}
	return p.buf[:n]
}

// number is what the file has now, where that is one.
func (p *page) number() (int64, bool) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(p.read())), 10, 64)
	return n, err == nil
}

func (p *page) close() {
	if p != nil {
		_ = unix.Close(p.fd)
	}
}

// tallyIn finds the number on the line "key N".
func tallyIn(content []byte, key string) (int64, bool) {
	for len(content) > 0 {
		line, rest, _ := bytes.Cut(content, []byte("\n"))
		if k, v, ok := bytes.Cut(line, []byte(" ")); ok && string(k) == key {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return n, err == nil
		}
		content = rest
	}
	return 0, false
}
