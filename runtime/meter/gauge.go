package meter

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"berth/runtime/btrfs"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/session/limits"
)

// A Gauge holds the kernel's files about one sandbox open. They are read for every command, and opening them takes
// five times as long as reading them. A file of a removed cgroup cannot be read, so a gauge never shows another
// sandbox's numbers.
type Gauge struct {
	workspace string

	// held while reading and closing: another file may reuse a closed descriptor's number at once
	mu          sync.Mutex
	closed      bool
	oom, forks  *tally
	work, layer *quotaGauge
	owner       *quotaGauge
}

// A quotaGauge holds the files of a qgroup open.
type quotaGauge struct {
	none                  bool // the pool has no quotas
	dir                   string
	limit, used, reserved *page
}

// maxGauges bounds how many gauges are open, with some eight files each.
const maxGauges = 128

// Gauges holds the gauges of the sandboxes that run commands, by sandbox. The zero value is empty.
type Gauges struct {
	mu sync.Mutex
	of map[string]*Gauge
}

// Read reads the gauge of a sandbox. It opens a gauge if there is none, or if the present one cannot be read or is
// for another workspace.
func (gs *Gauges) Read(sandbox, workspace string, open func() *Gauge) limits.Reading {
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
	if !ok || !g.whole() { // the sandbox is being removed, or a file that could not be opened may open the next time
		g.close()
		return reading
	}
	gs.keep(sandbox, g)
	return reading
}

// keep replaces the gauge of a sandbox. It drops other gauges if there are too many.
func (gs *Gauges) keep(sandbox string, g *Gauge) {
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
		gs.of = map[string]*Gauge{}
	}
	gs.of[sandbox] = g
}

// Drop closes the files of a sandbox.
func (gs *Gauges) Drop(sandbox string) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.dropLocked(sandbox)
}

// Close closes the files of all sandboxes.
func (gs *Gauges) Close() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for sandbox := range gs.of {
		gs.dropLocked(sandbox)
	}
}

func (gs *Gauges) dropLocked(sandbox string) {
	if g := gs.of[sandbox]; g != nil {
		delete(gs.of, sandbox)
		g.close()
	}
}

// OpenGauge opens the files about a sandbox with a workspace. Files that do not exist are left out.
func OpenGauge(d *diskpool.Pool, sandbox, workspace string) *Gauge {
	return &Gauge{
		workspace: workspace,
		oom:       openTally(sandbox, "oom_kill", "memory/%s/memory.oom_control", "%s/memory.events"),
		forks:     openTally(sandbox, "max", "pids/%s/pids.events", "%s/pids.events"),
		work:      quotaOf(d, d.WorkspacePath(workspace)),
		layer:     quotaOf(d, d.LayerPath(sandbox)),
		owner:     ownerQuota(d, d.WorkspacePath(workspace)),
	}
}

// A tally is an open file with the line "key N". A nil tally is a missing file.
type tally struct {
	*page
	key string
}

// openTally opens the first of the files that has the line.
func openTally(sandbox, key string, files ...string) *tally {
	for _, file := range files {
		p := openPage(filepath.Join(cgroup.Root, fmt.Sprintf(file, cgroup.Parent+"/"+sandbox)))
		if _, ok := tallyIn(p.read(), key); ok {
			return &tally{p, key}
		}
		p.close()
	}
	return nil
}

// quotaOf opens the files of the qgroup of the subvolume path.
func quotaOf(d *diskpool.Pool, path string) *quotaGauge {
	if !d.Quota {
		return &quotaGauge{none: true}
	}
	id, err := btrfs.SubvolumeID(path)
	if err != nil {
		return &quotaGauge{}
	}
	return openQuota(fmt.Sprintf("/sys/fs/btrfs/%s/qgroups/0_%d/", d.Fsid(), id))
}

// ownerQuota opens the files of the qgroup of the owner of the subvolume path.
func ownerQuota(d *diskpool.Pool, path string) *quotaGauge {
	dir := d.OwnerGroup(path)
	if dir == "" {
		return &quotaGauge{none: true}
	}
	return openQuota(dir + "/")
}

// openQuota opens the files of the qgroup with that directory.
func openQuota(dir string) *quotaGauge {
	return &quotaGauge{dir: dir, limit: openPage(dir + "max_referenced"), used: openPage(dir + "referenced"),
		reserved: openPage(dir + "rsv_data")}
}

// whole reports whether all files are open.
func (g *Gauge) whole() bool {
	return g.oom != nil && g.forks != nil && g.work.whole() && g.layer.whole() && g.owner.whole()
}

// read returns everything except the space of the pool. It reports false if a file that was opened cannot be read any
// more.
func (g *Gauge) read() (reading limits.Reading, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	reading = limits.Unknown
	if g.closed {
		return reading, false
	}
	ok = g.oom.readInto(&reading.OOMKills)
	ok = g.forks.readInto(&reading.PIDRefusals) && ok
	ok = g.work.read(&reading.Workspace) && ok
	ok = g.owner.read(&reading.Owner) && ok
	return reading, g.layer.read(&reading.Layer) && ok
}

func (g *Gauge) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.oom.close()
	g.forks.close()
	g.work.close()
	g.layer.close()
	g.owner.close()
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

// metaBytes bounds the remaining bytes of a limit below which reservations for file metadata count as used. If more
// is left, the kernel writes out that metadata and refuses nothing.
const metaBytes = 512 << 20

// read returns how much of its limit the subvolume uses. The kernel counts writes in the qgroup only when it commits,
// so read adds the bytes that are reserved until then. Both numbers are in sysfs since Linux 5.9.
func (q *quotaGauge) read(space *limits.Space) bool {
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
		*space = limits.Space{Used: used, Limit: limit}
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

// A page is an open file of the kernel that one read returns whole. A nil page is a missing file. It is no os.File:
// that supports files that can block, at twice the system calls.
type page struct {
	fd  int
	buf [pageBytes]byte
}

// pageBytes is more than the length of any file that is read here.
const pageBytes = 512

func openPage(path string) *page {
	fd, err := btrfs.OpenAgain(path, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil
	}
	return &page{fd: fd}
}

// read returns the file's present content, or nothing if it cannot be read.
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

// number returns the file's present content as a number, if it is one.
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
