package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/proto"
)

// movesDisk is a plain disk whose sandboxes have a layer, and a spare with a file in it.
func movesDisk(t *testing.T, dir string, sandboxes ...string) *disk {
	t.Helper()
	d := &disk{root: filepath.Join(dir, "pool"), kind: PoolPlain}
	for _, sub := range []string{d.workspaceDir(), d.layerDir()} {
		if err := os.MkdirAll(sub, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range sandboxes {
		if err := errors.Join(os.Mkdir(d.layerPath(name), 0o700), os.Mkdir(d.sparePath(name), 0o700),
			os.WriteFile(filepath.Join(d.sparePath(name), name), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.openMoves(filepath.Join(dir, "moves"), testConfig("").Log); err != nil {
		t.Fatal(err)
	}
	return d
}

// moved are moves of new sessions into new sandboxes.
func newMoves(n int) (all []move, sandboxes []string) {
	for range n {
		m := move{newID(proto.ContainerPrefix), newID(proto.ContainerPrefix), newID(proto.WorkspacePrefix), true}
		all, sandboxes = append(all, m), append(sandboxes, m.sandbox)
	}
	return all, sandboxes
}

// isMoved says what of a move is not done.
func isMoved(t *testing.T, d *disk, m move) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(d.workspacePath(m.workspace), m.sandbox)); err != nil {
		t.Error("the session has not the workspace:", err)
	}
	if target, err := os.Readlink(filepath.Join(d.layerPath(m.sandbox), claimLink)); err != nil ||
		target != m.session+" "+m.workspace {
		t.Errorf("the link says %q, %v", target, err)
	}
}

// TestMoves: what is put off changes nothing until somebody needs it, and then all of it is done, once.
func TestMoves(t *testing.T) {
	all, sandboxes := newMoves(4)
	dir := t.TempDir()
	d := movesDisk(t, dir, sandboxes...)
	for _, m := range all {
		if err := d.putOff(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range all {
		if exists(d.workspacePath(m.workspace)) || !exists(d.sparePath(m.sandbox)) {
			t.Errorf("%v is done already", m)
		}
	}
	if path, err := d.workspace(all[0].workspace); err != nil || !exists(path) {
		t.Errorf("asked for, it is not there: %v", err)
	}
	isMoved(t, d, all[0])
	if err := d.removeLayer(all[1].sandbox); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(d.workspacePath(all[1].workspace), all[1].sandbox)); err != nil {
		t.Error("a workspace went with the sandbox that it was made in:", err)
	}
	if err := d.removeWorkspace(all[2].workspace); err != nil || exists(d.sparePath(all[2].sandbox)) {
		t.Errorf("of a workspace that was removed something is left, %v", err)
	}
	if list, err := d.workspaces(); err != nil || len(list) != 3 || !slices.Contains(list, all[3].workspace) {
		t.Errorf("workspaces %v, %v", list, err)
	}
	isMoved(t, d, all[3])
	if text, err := os.ReadFile(filepath.Join(dir, "moves")); err != nil || len(text) > 0 {
		t.Errorf("to be done yet: %q, %v", text, err)
	}
	if err := d.closeMoves(); err != nil {
		t.Error(err)
	}
}

// TestMovesAfterCrash: a daemon that finds moves does them, whatever of each is done, and passes over what nobody has
// written.
func TestMovesAfterCrash(t *testing.T) {
	all, sandboxes := newMoves(5)
	dir := t.TempDir()
	d := movesDisk(t, dir, sandboxes...)
	for _, m := range all {
		if err := d.moves.note(m); err != nil {
			t.Fatal(err)
		}
	}
	gone := all[4]
	errs := []error{
		d.move(all[1]), // all of it
		os.Rename(d.sparePath(all[2].sandbox), d.workspacePath(all[2].workspace)), // half
		os.RemoveAll(d.layerPath(gone.sandbox)), os.RemoveAll(d.sparePath(gone.sandbox)),
		os.WriteFile(d.moves.path, append(read(t, d.moves.path), "\ncontainer_x ../.. spare\n"+all[3].String()[:40]...),
			0o600),
		os.RemoveAll(filepath.Join(d.layerPath(all[3].sandbox), claimLink)),
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	next := movesDisk(t, dir)
	for _, m := range all[:4] {
		isMoved(t, next, m)
	}
	if exists(next.workspacePath(gone.workspace)) || exists(next.layerPath(gone.sandbox)) {
		t.Error("a sandbox that is gone came back")
	}
	if there := entries(t, next.workspaceDir()); len(there) != 4 || len(read(t, next.moves.path)) > 0 {
		t.Errorf("%v is there, and %q", there, read(t, next.moves.path))
	}
}

// TestMovesThatFail: one that cannot be done stays, for the next daemon too, which knows whose the sandbox is
// nevertheless.
func TestMovesThatFail(t *testing.T) {
	all, sandboxes := newMoves(2)
	dir := t.TempDir()
	d := movesDisk(t, dir, sandboxes...)
	in := filepath.Join(d.layerPath(all[0].sandbox), claimLink)
	if err := errors.Join(os.Mkdir(in, 0o700), d.putOff(all[0]), d.putOff(all[1])); err != nil {
		t.Fatal(err)
	}
	if d.settle(all[0].sandbox) == nil || d.removeLayer(all[0].sandbox) == nil {
		t.Error("it is said to be done")
	}
	if d.settleAll() == nil {
		t.Error("all are said to be done")
	}
	isMoved(t, d, all[1])
	if list, err := d.workspaces(); err != nil || len(list) != 2 || !slices.Contains(list, all[0].workspace) {
		t.Errorf("workspaces %v, %v", list, err)
	}
	next := movesDisk(t, dir)
	if m, ok := next.moves.of(all[0].sandbox); !ok || m != all[0] {
		t.Errorf("the next daemon has %+v, %v", m, ok)
	}
	if err := errors.Join(os.Remove(in), next.settleAll()); err != nil {
		t.Error(err)
	}
	isMoved(t, next, all[0])
}

// TestMovesFile: the file stays small while there is always something to be done, and one without room has moves done
// at once.
func TestMovesFile(t *testing.T) {
	const n = 1500
	all, sandboxes := newMoves(n)
	d := movesDisk(t, t.TempDir(), sandboxes...)
	if err := d.putOff(all[0]); err != nil {
		t.Fatal(err)
	}
	for _, m := range all[1 : n-1] {
		if err := errors.Join(d.putOff(m), d.settle(m.sandbox)); err != nil {
			t.Fatal(err)
		}
	}
	text := read(t, d.moves.path)
	if len(text) > mostMoves+1024 || !strings.Contains(string(text), all[0].String()+"\n") {
		t.Errorf("%d bytes", len(text))
	}
	d.moves.mu.Lock()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.moves.f = full
	d.moves.mu.Unlock()
	if err := d.putOff(all[n-1]); err != nil {
		t.Error(err)
	}
	isMoved(t, d, all[n-1])
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return text
}

// FuzzMove: a line is read as what it was written of, or not at all.
func FuzzMove(f *testing.F) {
	f.Add(move{newID(proto.ContainerPrefix), newID(proto.ContainerPrefix), newID(proto.WorkspacePrefix), true}.String())
	f.Add(move{newID(proto.ContainerPrefix), newID(proto.ContainerPrefix), newID(proto.WorkspacePrefix),
		false}.String())
	f.Add("a b c -")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := moveOf(line); ok && fmt.Sprint(m) != line {
			t.Errorf("%q became %+v", line, m)
		}
	})
}
