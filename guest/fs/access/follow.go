package access

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// FollowFile is OpenFile for a path that may itself be a link. It follows the link, and further ones, as long as they
// stay in the workspace. Directories on the way to path must not be links. For root it follows root's own links only:
// the ordinary user may put links into the same directories.
func (w Workspace) FollowFile(id user.User, path string) (f *os.File, st *unix.Stat_t, err error) {
	if !w.Has(path) {
		return nil, nil, w.outside(path)
	}
	err = id.Do(func() error {
		base, rest, err := w.openBase(path)
		if err != nil {
			return err
		}
		t := &trail{w: w, id: id, path: path, dirs: []int{base}}
		defer t.leave(0)
		f, st, err = t.open(rest)
		return err
	})
	return f, st, err
}

func (w Workspace) outside(path string) error {
	return proto.Errorf(proto.InvalidArgument, wire.OpRead, path, "%s: is outside of %s", path, w)
}

// A trail is the way to a file, step by step as in OpenParent, so that no directory is exchanged in the meantime. The
// kernel could confine a whole path, but takes the target of an absolute link as one below the directory, and gVisor
// has no such call.
type trail struct {
	w     Workspace
	id    user.User
	path  string
	dirs  []int // open directories, from the workspace to the current one
	above int   // how many levels above the workspace the way is at the moment; then only the workspace is open
	links int
}

// leave closes all but the first n directories.
func (t *trail) leave(n int) {
	for _, fd := range t.dirs[n:] {
		_ = unix.Close(fd)
	}
	t.dirs = t.dirs[:n]
}

// open follows rest, a path below the workspace.
func (t *trail) open(rest string) (*os.File, *unix.Stat_t, error) {
	up := strings.Split(strings.Trim(string(t.w), "/"), "/") // the directories above the workspace's content
	todo := strings.Split(rest, "/")
	for parents := len(todo) - 1; len(todo) > 0; parents-- {
		name, at := todo[0], t.dirs[len(t.dirs)-1]
		todo = todo[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == ".." && len(t.dirs) > 1:
			t.leave(len(t.dirs) - 1)
			continue
		case name == "..":
			t.above = min(t.above+1, len(up))
			continue
		case t.above > 0 && name == up[len(up)-t.above]:
			t.above--
			continue
		case t.above > 0:
			return nil, nil, t.w.outside(t.path)
		}
		to, err := LinkAt(at, name)
		switch {
		case err == nil && parents > 0:
			return nil, nil, unix.ELOOP
		case err == nil:
			if err := t.mayFollow(at, name); err != nil {
				return nil, nil, err
			}
			if strings.HasPrefix(to, "/") {
				t.leave(1)
				t.above = len(up)
			}
			todo = slices.Concat(strings.Split(to, "/"), todo)
		case err != unix.EINVAL: // not "no link"
			return nil, nil, err
		case len(todo) == 0:
			fd, err := unix.Openat(at, name,
				unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, nil, err
			}
			return regular(fd, t.path)
		case len(t.dirs) > wire.MaxDepth:
			return nil, nil, unix.ENAMETOOLONG
		default:
			next, err := StepInto(at, name)
			if err != nil {
				return nil, nil, err
			}
			t.dirs = append(t.dirs, next)
		}
	}
	if t.above > 0 {
		return nil, nil, t.w.outside(t.path)
	}
	return nil, nil, unix.EISDIR
}

// mayFollow returns why the link name must not be followed.
func (t *trail) mayFollow(at int, name string) error {
	if t.links++; t.links > MaxLinks {
		return unix.ELOOP
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if t.id.IsRoot() && st.Uid != 0 {
		return proto.Errorf(proto.PermissionDenied, wire.OpRead, t.path, "%s: is or passes a link of another user, "+
			"which root does not follow", t.path)
	}
	return nil
}
