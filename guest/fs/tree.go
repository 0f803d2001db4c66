package fs

import (
	"errors"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// errOutside says that a link leads out of a tree.
var errOutside = errors.New("leads out of the directory")

// A tree is a directory below which names are found step by step, so that none leads out of it, whatever links there
// are or come to be. (os.Root does the same, but trusts O_DIRECTORY with O_NOFOLLOW, which follows links under
// gVisor; see stepInto.)
type tree struct{ fd int }

func openTree(dir string) (*tree, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return &tree{fd}, err
}

func (t *tree) close() { _ = unix.Close(t.fd) }

// parent opens the directory that name, which is clean and relative, is in, and returns what the name is without the
// links on the way to that. Directories that are missing are made if grow is set. Links are followed if they stay
// inside; else the error is errOutside.
func (t *tree) parent(name string, grow bool) (at int, real string, err error) {
	for range maxLinks {
		at, again, err := t.descend(name, grow)
		if err != nil || again == "" {
			return at, name, err
		}
		name = again
	}
	return -1, "", unix.ELOOP
}

// descend goes down from directory to directory. Where it finds a link it returns what the name is without it.
func (t *tree) descend(name string, grow bool) (at int, again string, err error) {
	if at, err = unix.Openat(t.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return -1, "", err
	}
	parts := strings.Split(name, "/")
	for i, part := range parts[:len(parts)-1] {
		next, err := stepInto(at, part)
		if grow && isMissing(err) {
			if err = unix.Mkdirat(at, part, 0o755); err == nil || err == unix.EEXIST {
				next, err = stepInto(at, part)
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

// throughLink is the name of parts, if its i-th is a link in the open directory at that leads to somewhere in the tree.
func throughLink(at int, parts []string, i int) (string, error) {
	to, err := linkAt(at, parts[i])
	if err != nil {
		return "", unix.ENOTDIR // something else that is no directory
	}
	there := path.Join(path.Join(parts[:i]...), to)
	if path.IsAbs(to) || !filepath.IsLocal(there) {
		return "", errOutside
	}
	// Not cleaned: the last part may be "." for the directory itself.
	return strings.TrimPrefix(there+"/"+strings.Join(parts[i+1:], "/"), "./"), nil
}
