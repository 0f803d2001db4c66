// Package find walks the entries below a directory of a container in a fixed order, and selects some of them. A walk
// has bounded memory, whatever there is to walk, and can end anywhere and go on from there later. Package guest/fs
// answers lists and searches with it, and guest/fs/grep looks into the files that it finds.
package find

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/wire"
	"berth/proto"
)

// Bounds of one walk.
const (
	// fullBatch is how many names of a directory are held at a time, and of all directories on the way together about
	// twice that. A directory with more is read several times.
	fullBatch  = 10_000
	smallBatch = 64
	// maxWork is how many entries are examined. Reading a name costs a part of that.
	maxWork  = 1_000_000
	nameCost = 16
	// maxTime is how long a walk takes, if there is nothing slow about one entry.
	maxTime = 15 * time.Second
	// checkEach is how often time and connection are looked at, in entries.
	checkEach = 256
)

// An Entry is one entry that a walk found.
type Entry struct {
	Dir  int    // the open directory that it is in
	Name string // in Dir
	Path string // absolute
	Rel  string // below the start of the walk
	Info proto.FileInfo
}

// A Walk is one walk. It follows no links and enters no file systems of the kernel such as /proc.
type Walk struct {
	opt     proto.FindOptions
	names   globs
	exclude globs
	visit   func(*Entry) bool
	alive   func() bool

	work    int
	visited int
	held    int // names in memory, of all open directories
	end     time.Time
	stopped bool
	buf     []byte
	last    string // path of the last entry that was examined
	skipped int
}

// New makes a walk. Its options must be checked. alive is asked now and then whether the result is still wanted; nil
// means that it is. A bounded walk ends after maxWork or maxTime, unless unbounded is set.
func New(opt proto.FindOptions, alive func() bool, unbounded bool) *Walk {
	w := &Walk{opt: opt, names: newGlobs(opt.Names, opt.IgnoreCase), exclude: newGlobs(opt.Exclude, opt.IgnoreCase),
		alive: alive, work: maxWork, end: time.Now().Add(maxTime), buf: make([]byte, 32<<10)}
	if unbounded {
		w.work, w.end = math.MaxInt, time.Time{}
	}
	return w
}

// Run calls visit for each entry below the open directory d that is selected, until visit returns false. path is the
// path of d. An error is of the directory itself.
func (w *Walk) Run(d int, path string, visit func(*Entry) bool) error {
	w.visit = visit
	var st unix.Stat_t
	if err := unix.Fstat(d, &st); err != nil {
		return err
	}
	return w.dir(dir{fd: d, path: path, dev: uint64(st.Dev)}, string(w.opt.Cursor))
}

// Next returns where a walk that has ended goes on, or nil if all is done.
func (w *Walk) Next() []byte {
	if !w.stopped {
		return nil
	}
	return []byte(w.last)
}

// Skipped returns the number of directories that could not be walked.
func (w *Walk) Skipped() int { return w.skipped }

// A dir is an open directory of a walk.
type dir struct {
	fd        int
	path, rel string
	dev       uint64
	depth     int // of its entries is one more
}

// dir walks one directory. after is a path below it that was examined already, or "".
func (w *Walk) dir(d dir, after string) error {
	last, rest, _ := strings.Cut(after, "/")
	if last != "" { // what is below that entry comes after it
		w.descend(d, last, rest)
	}
	for more := true; more && !w.stopped; {
		if w.tired() {
			return nil
		}
		var batch []access.DirEntry
		var err error
		if batch, more, err = w.batch(d.fd, last); err != nil {
			return err
		}
		w.held += len(batch)
		for _, e := range batch {
			if w.entry(d, e); w.stopped {
				break
			}
			last = e.Name
		}
		w.held -= len(batch)
	}
	return nil
}

// tired stops a walk that has done enough, or whose result is not wanted any more. Each walk examines something.
func (w *Walk) tired() bool {
	w.visited++
	enough := w.work <= 0
	if w.visited%checkEach == 0 {
		enough = enough || !w.end.IsZero() && time.Now().After(w.end) || w.alive != nil && !w.alive()
	}
	w.stopped = w.stopped || enough && w.last != ""
	return w.stopped
}

// batch returns the first names of a directory after a name, in order, and whether there are more.
func (w *Walk) batch(fd int, after string) (list []access.DirEntry, more bool, err error) {
	most := max(smallBatch, min(fullBatch, fullBatch-w.held/2))
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return nil, false, err
	}
	var bound []byte // the largest name of the list, if there are more
	read := 0
	byName := func(a, b access.DirEntry) int { return strings.Compare(a.Name, b.Name) }
	err = access.EachEntry(fd, w.buf, func(name []byte, kind byte) bool {
		read++
		if string(name) <= after || bound != nil && string(name) >= string(bound) {
			return true
		}
		if list = append(list, access.DirEntry{Name: string(name), Kind: kind}); len(list) >= 2*most {
			slices.SortFunc(list, byName)
			clear(list[most:])
			list = list[:most]
			bound, more = []byte(list[most-1].Name), true
		}
		return true
	})
	w.work -= read / nameCost
	slices.SortFunc(list, byName)
	if len(list) > most {
		clear(list[most:])
		list, more = list[:most], true
	}
	return list, more, err
}

// entry examines one entry, and what is below it.
func (w *Walk) entry(d dir, e access.DirEntry) {
	if w.work--; w.tired() {
		return
	}
	rel := join(d.rel, e.Name)
	path := filepath.Join(d.path, e.Name)
	if w.exclude.match(rel, e.Name) {
		w.last = rel
		return
	}
	if len(path) >= unix.PathMax {
		w.last = rel
		if e.Kind == unix.DT_DIR {
			w.skipped++
		}
		return
	}
	var info proto.FileInfo
	if e.Kind == unix.DT_UNKNOWN || w.wants(e.Kind) && (len(w.names) == 0 || w.names.match(rel, e.Name)) {
		var err error
		if info, err = access.InfoAt(d.fd, e.Name, path); err != nil {
			w.last = rel // it was removed in the meantime
			return
		}
		if w.selects(&info, rel, e.Name) && !w.visit(&Entry{d.fd, e.Name, path, rel, info}) {
			w.stopped = true
			return // it comes again
		}
	}
	w.last = rel
	if e.Kind == unix.DT_DIR || info.Type == proto.TypeDirectory {
		w.descend(d, e.Name, "")
	}
}

// Stop ends the walk behind the entry that is being visited.
func (w *Walk) Stop() { w.stopped = true }

// wants reports whether entries of this kind are selected.
func (w *Walk) wants(kind byte) bool {
	if len(w.opt.Types) == 0 {
		return true
	}
	is := proto.TypeOther
	switch kind {
	case unix.DT_REG:
		is = proto.TypeFile
	case unix.DT_DIR:
		is = proto.TypeDirectory
	case unix.DT_LNK:
		is = proto.TypeSymlink
	}
	return slices.Contains(w.opt.Types, is)
}

// selects reports whether an entry is to be visited.
func (w *Walk) selects(fi *proto.FileInfo, rel, name string) bool {
	o := &w.opt
	return (len(o.Types) == 0 || slices.Contains(o.Types, fi.Type)) &&
		(len(w.names) == 0 || w.names.match(rel, name)) &&
		(o.MinSize == 0 && o.MaxSize == nil || fi.Type == proto.TypeFile) &&
		fi.SizeBytes >= o.MinSize && (o.MaxSize == nil || fi.SizeBytes <= *o.MaxSize) &&
		(o.After == nil || !fi.ModifiedAt.Before(o.After.Time)) &&
		(o.Before == nil || fi.ModifiedAt.Before(o.Before.Time))
}

// descend walks a directory below d, if that is allowed. after is as for dir.
func (w *Walk) descend(d dir, name, after string) {
	sub := dir{path: filepath.Join(d.path, name), rel: join(d.rel, name), depth: d.depth + 1}
	if sub.depth >= w.opt.Depth && w.opt.Depth > 0 || w.exclude.match(sub.rel, name) {
		return
	}
	fd, err := access.OpenEntry(d.fd, name)
	switch {
	case err == unix.ENOTDIR || access.IsMissing(err):
		return
	case err != nil || sub.depth >= wire.MaxDepth:
		w.skipped++
	default:
		var st unix.Stat_t
		if sub.fd = fd; unix.Fstat(fd, &st) == nil && (uint64(st.Dev) == d.dev || holdsFiles(fd)) {
			if sub.dev = uint64(st.Dev); w.dir(sub, after) != nil {
				w.skipped++
			}
		}
	}
	if err == nil {
		_ = unix.Close(fd)
	}
}

// holdsFiles reports whether a file system has files, and is not a view of the kernel's state.
func holdsFiles(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch int64(st.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEVPTS_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.BPF_FS_MAGIC, unix.SECURITYFS_MAGIC,
		mqueueMagic:
		return false
	}
	return true
}

// mqueueMagic is the type of the file system of POSIX message queues, which unix has no name for.
const mqueueMagic = 0x19800202

func join(rel, name string) string {
	if rel == "" {
		return name
	}
	return rel + "/" + name
}
