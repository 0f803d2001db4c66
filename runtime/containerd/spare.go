package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/proto"
)

// A spare is an empty workspace that a member of the warm pool has with it, for the session that will need a new one:
// a fifth of what a claim costs the daemon is a subvolume that it makes. It is mapped to the member's users already
// and has no place. Its directory is named by the sandbox and goes with its layer, unless a session's workspace was
// made of it. It stands among workspaces, and is called as one, since a sandbox can see which directory it has.
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

func (d *disk) sparePath(sandbox string) string { return d.workspacePath(spareName(sandbox)) }

func spareName(sandbox string) string {
	return proto.WorkspacePrefix + strings.TrimPrefix(sandbox, proto.ContainerPrefix)
}

// workspaces lists those of sessions, by ID. A spare has a layer, which is made before it and removed after it.
func (d *disk) workspaces() ([]string, error) {
	_ = d.settleAll() // who does so in the background says what is wrong
	var list []string
	other := map[string]bool{} // names that are spares, or listed already
	for _, m := range d.moves.all() {
		list, other[m.workspace] = append(list, m.workspace), true
	}
	before, err1 := d.layers()
	there, err2 := names(d.workspaceDir())
	after, err3 := d.layers()
	for _, sandbox := range slices.Concat(before, after) {
		other[spareName(sandbox)] = true
	}
	there = slices.DeleteFunc(there, func(name string) bool { return other[name] })
	return append(list, there...), errors.Join(err1, err2, err3)
}

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

// lend readies s for the workspace id, whose name it gets by a move. It reports false where there is such a workspace
// already, or no spare.
func (d *disk) lend(s *spare, id string, bytes int64) (bool, error) {
	if s == nil {
		return false, nil
	}
	path, err := d.workspace(id)
	if err != nil || exists(path) {
		return false, err
	}
	if bytes != s.bytes {
		err = d.limit(d.sparePath(s.sandbox), bytes)
	}
	return err == nil, err
}

func (d *disk) removeSpare(sandbox string) error { return d.remove(d.sparePath(sandbox)) }

// dropOldSpares removes the directory of their own that spares had once. The members that they were for are of
// another program, and nobody takes those over.
func (d *disk) dropOldSpares() {
	dir := filepath.Join(d.root, "spare")
	list, _ := names(dir) // nearly always it is not there
	for _, name := range list {
		_ = d.remove(filepath.Join(dir, name))
	}
	_ = os.Remove(dir)
}
