package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// To claim a sandbox changes the pool twice: the member's empty workspace gets the name of the session's, and a link
// in its layer says whose it is. Both wait for each other's locks in the file system, which is most of what a claim
// would wait for when many come at once. So a claim is a line in a file at first, which is safe from the daemon's
// death; the pool is changed when nobody is in a hurry, or somebody needs it changed.

// A move is a session's moving in: what is to be changed in the pool.
type move struct {
	sandbox, session, workspace string
	spare                       bool // the workspace was made of the sandbox's spare
}

// String is its line, without the end.
func (m move) String() string {
	spare := "-"
	if m.spare {
		spare = "spare"
	}
	return strings.Join([]string{m.sandbox, m.session, m.workspace, spare}, " ")
}

// moveOf reads a line. What no daemon has written is none.
func moveOf(line string) (m move, ok bool) {
	f := strings.Split(line, " ")
	if len(f) != 4 || f[3] != "spare" && f[3] != "-" {
		return m, false
	}
	m = move{f[0], f[1], f[2], f[3] == "spare"}
	return m, proto.ValidID(proto.ContainerPrefix, m.sandbox) && proto.ValidID(proto.ContainerPrefix, m.session) &&
		proto.ValidID(proto.WorkspacePrefix, m.workspace)
}

// mostMoves is the size in bytes above which the file is written anew although some of it is to be done yet.
const mostMoves = 64 << 10

// moves are those that are not done. The zero value has no file, and none is put off.
type moves struct {
	doing sync.Mutex // held while the pool is changed; locked before mu

	mu   sync.Mutex // guards what follows
	path string
	f    *os.File // nil: there is none
	size int64
	left map[string]move   // by sandbox
	into map[string]string // sandboxes by workspace
}

// openMoves opens the file, and does what the daemon before had left, as far as that can be.
func (d *disk) openMoves(path string, log *slog.Logger) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading whose sandboxes are: %w", err)
	}
	ms := &d.moves
	ms.path, ms.left, ms.into = path, map[string]move{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		// The last line of a daemon that was killed is whole, or there was no room for it and nobody was told.
		m, ok := moveOf(strings.TrimSuffix(line, "\n"))
		if !ok {
			continue
		}
		if err := d.move(m); err != nil {
			log.Error("a container's move into its sandbox is not done yet", "container", m.session, "sandbox",
				m.sandbox, "err", err)
			ms.add(m)
		}
	}
	if err := ms.rewrite(); err != nil {
		return fmt.Errorf("making the file of whose sandboxes are: %w", err)
	}
	return nil
}

// putOff writes a move down. If that cannot be, it is done now.
func (d *disk) putOff(m move) error {
	if d.moves.note(m) == nil {
		return nil
	}
	return d.move(m)
}

// note adds a line. Nothing is noted where that fails.
func (ms *moves) note(m move) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.f == nil {
		return fs.ErrClosed
	}
	line := m.String() + "\n"
	n, err := ms.f.WriteString(line)
	if err != nil {
		return errors.Join(err, ms.f.Truncate(ms.size)) // half a line would spoil the next one
	}
	ms.size += int64(n)
	ms.add(m)
	return nil
}

// add is note without a line.
func (ms *moves) add(m move) {
	ms.left[m.sandbox], ms.into[m.workspace] = m, m.sandbox
}

// of is the move of a sandbox that is to be done yet.
func (ms *moves) of(sandbox string) (m move, ok bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m, ok = ms.left[sandbox]
	return m, ok
}

// to is the move into a workspace likewise.
func (ms *moves) to(workspace string) (m move, ok bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m, ok = ms.left[ms.into[workspace]]
	return m, ok
}

// all are those that are to be done yet.
func (ms *moves) all() []move {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return slices.Collect(maps.Values(ms.left))
}

// done forgets one. With the last one the file is empty.
func (ms *moves) done(m move) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.left, m.sandbox)
	delete(ms.into, m.workspace)
	if len(ms.left) == 0 && ms.f.Truncate(0) == nil {
		ms.size = 0
	}
	if ms.size > mostMoves {
		_ = ms.rewrite() // what is done already can be done again
	}
}

// rewrite has the file hold nothing but what is left. If that fails it is as it was. Called with mu held.
func (ms *moves) rewrite() error {
	var text bytes.Buffer
	for _, m := range ms.left {
		text.WriteString(m.String() + "\n")
	}
	next := ms.path + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(text.Bytes()); err == nil {
		err = os.Rename(next, ms.path)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	if ms.f != nil {
		_ = ms.f.Close()
	}
	ms.f, ms.size = f, int64(text.Len())
	return nil
}

// settle does the move of a sandbox, if there is one, and settleInto that into a workspace. Whoever needs the layer
// of the one or the path of the other asks for that first.
func (d *disk) settle(sandbox string) error {
	return d.settleOne(func() (move, bool) { return d.moves.of(sandbox) })
}

func (d *disk) settleInto(workspace string) error {
	return d.settleOne(func() (move, bool) { return d.moves.to(workspace) })
}

// settleAll does all of them. One that cannot be done keeps no other from it.
func (d *disk) settleAll() (err error) {
	for _, m := range d.moves.all() {
		err = errors.Join(err, d.settle(m.sandbox))
	}
	return err
}

func (d *disk) settleOne(which func() (move, bool)) error {
	if _, ok := which(); !ok {
		return nil
	}
	d.moves.doing.Lock()
	defer d.moves.doing.Unlock()
	m, ok := which() // unless somebody else has done it by now
	if !ok {
		return nil
	}
	if err := d.move(m); err != nil {
		return err
	}
	d.moves.done(m)
	return nil
}

// move changes the pool. It may have done so before, up to any point; and what it is about may be gone since.
func (d *disk) move(m move) error {
	if m.spare {
		err := unix.Renameat2(unix.AT_FDCWD, d.sparePath(m.sandbox), unix.AT_FDCWD, d.workspacePath(m.workspace),
			unix.RENAME_NOREPLACE)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("giving a workspace its name: %w", err)
		}
	}
	target, link := m.session+" "+m.workspace, filepath.Join(d.layerPath(m.sandbox), claimLink)
	err := os.Symlink(target, link)
	if errors.Is(err, fs.ErrExist) {
		if there, _ := os.Readlink(link); there == target {
			return nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing down whose a sandbox is: %w", err)
	}
	return nil
}

// closeMoves does what is left, and closes the file.
func (d *disk) closeMoves() error {
	if d.moves.f == nil {
		return nil
	}
	err := d.settleAll()
	d.moves.mu.Lock()
	defer d.moves.mu.Unlock()
	err = errors.Join(err, d.moves.f.Close())
	d.moves.f = nil
	return err
}
