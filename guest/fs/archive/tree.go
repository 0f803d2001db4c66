package archive

import (
	"errors"
	"path"
	"path/filepath"
	"strings"

	"berth/guest/fs/access"

	"golang.org/x/sys/unix"
)

// errOutside means that a link leads out of a tree.
var errOutside = errors.New("leads out of the directory")

// tree is a directory below which names are resolved step by step, so that no name leads out of it, even if links
// change in the meantime. (os.Root does the same, but it trusts O_DIRECTORY with O_NOFOLLOW, which follows links
// under gVisor; see stepInto.)
type tree struct{ fd int }

func openTree(dir string) (*tree, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return &tree{fd}, err
}

func (t *tree) close() { _ = unix.Close(t.fd) }

// parent opens the parent directory of name, which is clean and relative. real is name with the links on the way
// resolved. If grow is set, parent makes missing directories. It follows links that stay inside the tree; other links
// return errOutside.
func (t *tree) parent(name string, grow bool) (at int, real string, err error) {
	for range access.MaxLinks {
		at, again, err := t.descend(name, grow)
		if err != nil || again == "" {
			return at, name, err
		}
		name = again
	}
	return -1, "", unix.ELOOP
}

// descend goes down directory by directory. If it finds a link, it returns the name with that link resolved.
func (t *tree) descend(name string, grow bool) (at int, again string, err error) {
	if at, err = unix.Openat(t.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return -1, "", err
	}
	parts := strings.Split(name, "/")
	for i, part := range parts[:len(parts)-1] {
		next, err := access.StepInto(at, part)
		if grow && access.IsMissing(err) {
			if err = unix.Mkdirat(at, part, 0o755); err == nil || err == unix.EEXIST {
				next, err = access.StepInto(at, part)
			}
		}
		if err == unix.ENOTDIR {
			again, err = throughLink(at, parts, i)
		}
		_ = unix.Close(at)
		if err != nil || again != "" {
			return -1, again, err
		}
		at = next
	}
	return at, "", nil
}

// throughLink resolves the i-th part of parts, if it is a link in the open directory at that leads into the tree, and
// returns the new name.
func throughLink(at int, parts []string, i int) (string, error) {
	to, err := access.LinkAt(at, parts[i])
	if err != nil {
		return "", unix.ENOTDIR // neither a link nor a directory
	}
	there := path.Join(path.Join(parts[:i]...), to)
	if path.IsAbs(to) || !filepath.IsLocal(there) {
		return "", errOutside
	}
	// Not cleaned: the last part may be "." for the directory itself.
	return strings.TrimPrefix(there+"/"+strings.Join(parts[i+1:], "/"), "./"), nil
}
