package fs

import (
	"crypto/rand"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/wire"
	"berth/proto"
)

// Bounds of what is remembered of walks, beside their states.
const (
	maxLists   = 4     // jobs whose files are remembered
	maxListed  = 6_000 // files of one of them; each takes about 150 bytes
	maxTouched = 64    // names with events; with more, the next walk reads everything
)

// A lastWalk is what the last walk of a job's directory found. If only some names have had events since, a look at
// these gives what another walk would give. Each event names one name of a file, so there must be no other: a file
// with several names is walked for, and so is everything that does not fit together.
type lastWalk struct {
	state   string
	same    bool // no event since
	files   map[string]file
	most    int
	cut     bool // the list is truncated
	last    string
	random  bool // where it is cut depends on the order of a directory
	touched map[string]touch
	moving  map[uint32]bool // renames by cookie, of which the second half has not come
}

// A file is what a walk found at a path.
type file struct {
	kind    proto.FileType
	size    int64
	changed int64 // in nanoseconds
}

func fileOf(fi *proto.FileInfo) file { return file{fi.Type, fi.SizeBytes, fi.ChangedAt.UnixNano()} }

// A touch is what events have said of a name.
type touch int

const (
	altered touch = iota // it was changed or removed, or is a new name of nothing
	came                 // it is a new name: of a new file, or one more of a known one
	left                 // what it named has another name now
)

// newLastWalk notes a walk. files is nil if they cannot be remembered, or one of them has several names.
func newLastWalk(state string, w *walker) *lastWalk {
	k := &lastWalk{state: state, same: true, most: w.most, cut: w.truncated, random: w.random}
	if w.linked || len(w.files) > maxListed {
		return k
	}
	k.files, k.touched, k.moving = make(map[string]file, len(w.files)), map[string]touch{}, map[uint32]bool{}
	for i := range w.files {
		fi := &w.files[i]
		if fi.RawPath != nil {
			k.files = nil // two such files may have one path
			return k
		}
		k.files[fi.Path] = fileOf(fi)
		k.last = max(k.last, walkOrder(fi.Path))
	}
	return k
}

// walkOrder makes paths compare in the order of a walk: what is below a directory comes where its name does.
func walkOrder(path string) string { return strings.ReplaceAll(path, "/", "\x00") }

// note takes an event of a name into account. It returns false if only a whole walk can tell what changed.
func (k *lastWalk) note(path string, mask, cookie uint32) bool {
	k.same = false
	if k.files == nil {
		return false
	}
	was, known := k.touched[path]
	switch {
	case mask&unix.IN_CREATE != 0:
		if known && was == came {
			return false
		}
		k.touched[path] = came
	case mask&unix.IN_MOVED_TO != 0:
		// What it replaces may have been one more name of a file.
		if known && was == came || !k.moving[cookie] {
			return false
		}
		delete(k.moving, cookie)
		k.touched[path] = came
	case mask&unix.IN_MOVED_FROM != 0:
		k.moving[cookie] = true
		k.touched[path] = left
	case mask&unix.IN_DELETE != 0:
		if known && was != altered {
			return false
		}
		k.touched[path] = altered
	case !known:
		k.touched[path] = altered
	}
	return len(k.touched) <= maxTouched && len(k.moving) <= maxTouched
}

// walkTouched looks at the names below a job's directory that have had events since the walk that gave the state since.
// It returns false if only a whole walk can tell what has changed.
func (s *FS) walkTouched(dir, since string, most int) (l wire.Listing, ok bool) {
	m := &s.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	if since == "" || m.in == nil || !m.settle(s.mappings) || m.stale {
		return l, false
	}
	k := m.known[dir]
	if k == nil || k.state != since || k.files == nil || k.most != most || len(k.moving) > 0 {
		return l, false
	}
	files, fresh := map[string]file{}, 0
	err := s.users.Root.Do(func() error {
		for path, t := range k.touched {
			fi, links, err := s.look(path)
			inside := strings.HasPrefix(path, dir+"/")
			was, listed := k.files[path]
			switch {
			case access.IsMissing(err) && (t == left && !listed || inside && listed && t != came && !k.cut):
				if listed {
					l.Gone = append(l.Gone, []byte(path))
				}
			case err != nil || links > 1 || fi.Type == proto.TypeDirectory || fi.RawPath != nil:
				return errUnclear
			case inside && listed && fileOf(&fi) != was || inside && !listed && !k.cut:
				l.Files, files[path] = append(l.Files, fi), fileOf(&fi)
				if !listed {
					fresh++
				}
			case inside && !k.leavesOut(path, t):
				return errUnclear
			}
		}
		return nil
	})
	if err != nil || len(k.files)+fresh > k.most {
		return wire.Listing{}, false
	}
	for path, f := range files {
		k.files[path] = f
	}
	for _, path := range l.Gone {
		delete(k.files, string(path))
	}
	clear(k.touched)
	k.state, k.same = rand.Text(), true
	l.Delta, l.Truncated, l.Mark = true, k.cut, k.state
	return l, true
}

// leavesOut reports whether a walk would leave out the file at path, which is there and not listed.
func (k *lastWalk) leavesOut(path string, t touch) bool {
	_, listed := k.files[path]
	return k.cut && !listed && (t == altered || !k.random && len(k.files) >= k.most && walkOrder(path) > k.last)
}

// errUnclear says that only a whole walk can tell what has changed.
const errUnclear = unix.ESTALE

// look describes the file at path and counts its names. It follows no link.
func (s *FS) look(path string) (fi proto.FileInfo, links uint64, err error) {
	at, name, err := s.OpenParent(path)
	if err != nil {
		return fi, 0, err
	}
	defer unix.Close(at)
	return access.InfoLinks(at, name, filepath.Clean(path))
}
