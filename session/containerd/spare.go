package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A spare is an empty workspace that a member of the warm pool has with it, for the session that will need a new one: a fifth of what a claim
// costs the daemon is a subvolume that it makes. It is mapped to the member's users already and has no place. Its directory is named by the
// sandbox and goes with its layer, unless a session's workspace was made of it.
type spare struct {
	sandbox string
	tree    *os.File // the detached mount
	bytes   int64    // what bounds it
}

func (s *spare) close() {
	if s != nil {
		s.tree.Close()
	}
}

func (d *disk) spareDir() string                { return filepath.Join(d.root, "spare") }
func (d *disk) sparePath(sandbox string) string { return filepath.Join(d.spareDir(), sandbox) }

// makeSpare makes the spare of a sandbox, or finds that of a daemon before.
func (d *disk) makeSpare(sandbox string, bytes int64, users *os.File) (*spare, error) {
	path := d.sparePath(sandbox)
	if err := d.makeEmpty(path, bytes); err != nil {
		return nil, fmt.Errorf("making a workspace ahead: %w", err)
	}
	tree, err := takeWorkspace(path, users)
	if err != nil {
		return nil, err
	}
	return &spare{sandbox, tree, bytes}, nil
}

// takeWorkspace takes a workspace from the host as a mount that has no place yet, mapped to users.
func takeWorkspace(path string, users *os.File) (*os.File, error) {
	tree, err := detach(path, 0, users)
	if err != nil {
		return nil, fmt.Errorf("taking the workspace: %w", err)
	}
	return os.NewFile(uintptr(tree), "workspace"), nil
}

// makeOfSpare makes the workspace id of s. It reports false where there is such a workspace already, or no spare.
func (d *disk) makeOfSpare(s *spare, id string, bytes int64) (bool, error) {
	if s == nil {
		return false, nil
	}
	path := d.workspacePath(id)
	err := unix.Renameat2(unix.AT_FDCWD, d.sparePath(s.sandbox), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err == nil && bytes != s.bytes {
		err = d.limit(path, bytes)
	}
	return err == nil, err
}

func (d *disk) removeSpare(sandbox string) error { return d.remove(d.sparePath(sandbox)) }
