package fs

import (
	"crypto/rand"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/fs/notify"
	"berth/guest/wire"
	"berth/proto"
)

// Bounds of the marks on a workspace. A larger one is walked after each command.
const (
	maxMarked  = 16_384          // directories; the kernel holds about 2 KiB for each
	maxScanned = 2_000_000       // entries that are read to find those directories
	maxJobs    = 64              // jobs whose last walk is remembered
	markRetry  = 2 * time.Minute // until the next try after the workspace could not be marked
)

// changes are the events of a change that a walk could see: of names, content, size, mode and times. Reads make no
// event. A write through a shared mapping makes none until the file is closed, see Mappings.
const changes = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF

// Mappings is what other processes of the container may do unseen.
type Mappings struct {
	Live   bool // there are processes of commands
	Shared bool // one of them has a file mapped that it can change without an event, or cannot be asked
}

// marks tell whether anything below the workspace has changed since a job's directory was walked. Each directory of
// the workspace has an inotify watch. All of them and not those of one job alone: a file may have names in several
// jobs, and a write through one name is told to the directory of that name.
//
// What the kernel does not tell counts as a change: events that it dropped, directories that had no watch for a while,
// files that a process has mapped, and descriptors of files whose directory is gone.
type marks struct {
	own string // the directory with the daemon's own files

	mu sync.Mutex
	in *notify.Instance // nil: nothing is marked
	// as notify.Bounded
	bounded bool
	dirs    map[int32]*marked
	made    map[string]bool      // directories that the guest is making, whose event is no change
	known   map[string]*lastWalk // by job directory
	// how many changes were seen; more of them mean that what was walked meanwhile may be old
	changes uint64
	stale   bool // a directory may lack its watch
	// a directory is gone, and a process may still write to a file that was in it
	orphans bool
	retry   time.Time
	buf     []byte
}

// A marked directory has a watch.
type marked struct {
	path    string
	output  bool // of a command, made by the guest
	touched bool // something happened in it
}

// seen returns the state of a job's directory at its last walk, or "" if that may have changed since. large says that
// the directory had too many files to be looked at after each command.
func (m *marks) seen(job string, others func() Mappings) (state string, large bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.settle(others) {
		return "", false
	}
	k := m.known[job]
	if k == nil {
		return "", false
	}
	if k.same {
		state = k.state
	}
	return state, len(k.files) > fingerprintFiles
}

// settle reads the events that are there, and reports whether they cover every change. Called with mu held.
func (m *marks) settle(others func() Mappings) bool {
	if m.in == nil {
		return false
	}
	// Before the events are read: a mapping that is gone by then has closed its file, which is an event.
	now := others()
	m.drain()
	if !now.Live {
		m.orphans = false
	}
	return m.in != nil && !now.Shared && !m.orphans
}

// drain reads the events that are there. Called with mu held.
func (m *marks) drain() {
	for {
		list, err := m.in.Drain(m.buf)
		if err != nil {
			m.drop()
			return
		}
		for _, e := range list {
			m.note(e)
		}
		if len(list) == 0 {
			clear(m.made) // whatever the guest has made has had its event
			return
		}
	}
}

// note takes one event into account.
func (m *marks) note(e notify.Event) {
	d := m.dirs[e.WD]
	switch {
	case e.Mask&(unix.IN_Q_OVERFLOW|unix.IN_UNMOUNT) != 0:
		m.changed(true)
	case d == nil: // of a watch that is over
	case e.Mask&unix.IN_IGNORED != 0:
		delete(m.dirs, e.WD)
	case e.Mask&unix.IN_DELETE_SELF != 0:
		m.orphans = m.orphans || d.touched || !d.output
	case e.Mask&unix.IN_ISDIR != 0:
		m.noteDirectory(filepath.Join(d.path, e.Name), e.Mask)
	case d.path == m.own && isOwn(e.Name):
	default:
		d.touched = true
		m.changes++
		for job, k := range m.known {
			if !k.note(filepath.Join(d.path, e.Name), e.Mask, e.Cookie) {
				delete(m.known, job)
			}
		}
	}
}

// noteDirectory notes the event of an entry that is a directory. A walk lists no directories, so mode and times of one
// do not matter. What was in a removed one had events of its own.
func (m *marks) noteDirectory(path string, mask uint32) {
	switch {
	case mask&unix.IN_CREATE != 0 && m.made[path]:
		delete(m.made, path)
	case mask&(unix.IN_CREATE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO) != 0:
		m.changed(true)
	}
}

// changed forgets what was known. newDirs says that there may be directories without a watch.
func (m *marks) changed(newDirs bool) {
	clear(m.known)
	m.changes++
	m.stale = m.stale || newDirs
}

// isOwn reports whether the daemon names its files that way. Its copy of a manifest is no change of a job.
func isOwn(name string) bool {
	return strings.HasSuffix(name, ".json") || name == ".gitignore" || access.IsTemp(name)
}

// drop ends the marks.
func (m *marks) drop() {
	if m.in != nil {
		m.in.Close()
	}
	m.in, m.dirs, m.made, m.known = nil, nil, nil, nil
	m.changes++
	m.stale, m.orphans = false, false
}

// active reports whether there are marks.
func (m *marks) active() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.in != nil
}

// making runs mkdir, which makes the directory at path for a command, so that this is no change.
func (m *marks) making(path string, mkdir func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.in == nil {
		return mkdir()
	}
	m.made[path] = true
	err := mkdir()
	if err != nil {
		delete(m.made, path)
		return err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		err = m.add(fd, &marked{path: path, output: true})
		_ = unix.Close(fd)
	}
	if err != nil {
		m.changed(true)
	}
	return nil
}

// add watches the directory of a descriptor.
func (m *marks) add(fd int, d *marked) error {
	wd, err := m.in.Add(fd, changes|unix.IN_ONLYDIR)
	if err == nil {
		m.dirs[wd] = d
	}
	return err
}

// walkMarked walks a job's directory and remembers its state, so that seen knows it until something changes. It marks
// the workspace for a directory that has too many files to be walked after each command. mark is what seen will return
// for a list that is truncated.
func (s *FS) walkMarked(dir string, walk func() (*walker, error)) (w *walker, mark string, err error) {
	m := &s.marks
	if !m.active() {
		if w, err = walk(); err != nil || len(w.files) <= fingerprintFiles && !w.truncated {
			return w, "", err
		}
	}
	changes, marked := s.mark()
	if !marked && w != nil {
		return w, "", nil
	}
	if w, err = walk(); err != nil || !marked {
		return w, "", err
	}
	state := ""
	if w.truncated {
		mark = rand.Text()
		state = mark
	} else {
		state = proto.Fingerprint(dir, w.sorted())
	}
	m.remember(dir, newLastWalk(state, w), changes)
	return w, mark, nil
}

// remember notes what was found in a job's directory, unless there were changes during the walk. Those that were not
// read yet will be.
func (m *marks) remember(dir string, k *lastWalk, changes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.in == nil || m.changes != changes {
		return
	}
	if len(m.known) >= maxJobs {
		clear(m.known)
	}
	if !m.bounded { // gVisor, whose events of names are not the kernel's
		k.files = nil
	}
	lists := 0
	for job, other := range m.known {
		if other.files != nil && job != dir {
			if lists++; lists >= maxLists {
				delete(m.known, job)
			}
		}
	}
	m.known[dir] = k
}

// mark gives every directory of the workspace a watch. It returns the number of changes so far, and false if it could
// not mark all.
func (s *FS) mark() (changes uint64, ok bool) {
	m := &s.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.in != nil {
		m.drain()
	}
	if m.in != nil && !m.stale {
		return m.changes, true
	}
	if m.in == nil && !m.open() {
		return 0, false
	}
	m.stale = false // before the scan: what is made during it has an event
	sc := &scan{m: m, left: maxScanned, buf: make([]byte, 32<<10)}
	err := s.users.Root.Do(func() error {
		d, err := s.OpenDirFD(string(s.Workspace))
		if err != nil {
			return err
		}
		defer unix.Close(d)
		return sc.dir(d, string(s.Workspace), 0)
	})
	if err != nil {
		m.drop()
		m.retry = time.Now().Add(markRetry)
	}
	return m.changes, err == nil
}

// open starts marks without a directory. Called with mu held.
func (m *marks) open() bool {
	if time.Now().Before(m.retry) {
		return false
	}
	m.bounded = notify.Bounded()
	in, err := notify.Open(!m.bounded)
	if err != nil {
		m.retry = time.Now().Add(markRetry)
		return false
	}
	m.in, m.dirs, m.made, m.known = in, map[int32]*marked{}, map[string]bool{}, map[string]*lastWalk{}
	m.buf = make([]byte, 16<<10) // larger than notify.MinBuffer
	if !m.bounded {
		go m.keepShort(in)
	}
	return true
}

// scan adds the directories below the workspace.
type scan struct {
	m    *marks
	dev  uint64
	left int
	buf  []byte
}

// dir adds one directory and those below it. The watch comes before the entries are read, so that none is missed.
func (sc *scan) dir(d int, path string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstat(d, &st); err != nil {
		return err
	}
	if depth == 0 {
		sc.dev = uint64(st.Dev)
	}
	if uint64(st.Dev) != sc.dev {
		return nil // a walk does not enter it either
	}
	if depth > wire.MaxDepth || len(sc.m.dirs) >= maxMarked {
		return unix.ENOSPC
	}
	if err := sc.m.add(d, &marked{path: path}); err != nil {
		return err
	}
	var below []string
	err := access.EachEntry(d, sc.buf, func(name []byte, kind byte) bool {
		if kind == unix.DT_DIR || kind == unix.DT_UNKNOWN {
			below = append(below, string(name))
		}
		sc.left--
		return sc.left > 0 && len(below) <= maxMarked
	})
	if err != nil || sc.left <= 0 {
		return unix.ENOSPC
	}
	for _, name := range below {
		sub, err := access.OpenEntry(d, name)
		if access.IsMissing(err) || err == unix.ENOTDIR {
			continue
		}
		if err == nil {
			err = sc.dir(sub, filepath.Join(path, name), depth+1)
			_ = unix.Close(sub)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shortPause is how often the queue of a kernel that does not bound it is read at most.
const shortPause = 200 * time.Millisecond

// keepShort reads a queue that the kernel does not bound, until the marks are dropped.
func (m *marks) keepShort(in *notify.Instance) {
	for in.Wait() == nil {
		m.mu.Lock()
		if m.in != in {
			m.mu.Unlock()
			return
		}
		m.drain()
		m.mu.Unlock()
		time.Sleep(shortPause)
	}
}
