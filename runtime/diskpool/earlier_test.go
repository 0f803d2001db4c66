package diskpool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/proto"
)

// earlierDisk makes a plain disk as an earlier build left it. Each sandbox has a layer and a prepared workspace,
// which holds a file named after the sandbox.
func earlierDisk(t *testing.T, dir string, sandboxes ...string) *Pool {
	t.Helper()
	d := &Pool{root: filepath.Join(dir, "pool"), Kind: Plain}
	for _, sub := range []string{d.workspaceDir(), d.LayerDir()} {
		if err := os.MkdirAll(sub, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range sandboxes {
		if err := errors.Join(os.Mkdir(d.LayerPath(name), 0o700), os.Mkdir(d.preparedPath(name), 0o700),
			os.WriteFile(filepath.Join(d.preparedPath(name), name), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func newDeferredClaims(n int) (all []deferredClaim, sandboxes []string, lines string) {
	for range n {
		c := deferredClaim{randomID(proto.ContainerPrefix), randomID(proto.ContainerPrefix),
			randomID(proto.WorkspacePrefix), true}
		all, sandboxes = append(all, c), append(sandboxes, c.sandbox)
		lines += strings.Join([]string{c.sandbox, c.session, c.workspace, "spare"}, " ") + "\n"
	}
	return all, sandboxes, lines
}

// isExecuted reports what of a claim is missing on the disk.
func isExecuted(t *testing.T, d *Pool, c deferredClaim) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(d.WorkspacePath(c.workspace), c.sandbox)); err != nil {
		t.Error("the session does not have the workspace:", err)
	}
	if got, err := d.ReadClaim(c.sandbox); err != nil || got != (Claim{Session: c.session, Workspace: c.workspace}) {
		t.Errorf("the link says %+v, %v", got, err)
	}
}

// TestEarlierClaims checks that the claims in an earlier build's file are executed, even if parts of each were done
// before. Lines that no build wrote are skipped, and prepared workspaces that no session took are removed.
func TestEarlierClaims(t *testing.T) {
	all, sandboxes, lines := newDeferredClaims(5)
	dir := t.TempDir()
	unused := randomID(proto.ContainerPrefix)
	d := earlierDisk(t, dir, append(sandboxes, unused)...)
	gone, file := all[4], filepath.Join(dir, "moves")
	if err := errors.Join(
		os.WriteFile(file, []byte(lines+"\ncontainer_x ../.. spare\n"+lines[:40]), 0o600),
		d.executeDeferred(all[1]), // all of it
		os.Rename(d.preparedPath(all[2].sandbox), d.WorkspacePath(all[2].workspace)), // half
		os.RemoveAll(d.LayerPath(gone.sandbox)), os.RemoveAll(d.preparedPath(gone.sandbox)),
		d.finishEarlier(file), d.finishEarlier(file)); err != nil {
		t.Fatal(err)
	}
	for _, c := range all[:4] {
		isExecuted(t, d, c)
	}
	if Exists(d.WorkspacePath(gone.workspace)) || Exists(d.LayerPath(gone.sandbox)) {
		t.Error("a sandbox that is gone came back")
	}
	if there := listDir(t, d.workspaceDir()); len(there) != 4 || Exists(file) {
		t.Errorf("%v is there; the file exists: %t", there, Exists(file))
	}
}

// TestEarlierClaimsThatFail checks that a claim that cannot be executed is an error, and that the next daemon
// executes it.
func TestEarlierClaimsThatFail(t *testing.T) {
	all, sandboxes, lines := newDeferredClaims(1)
	dir := t.TempDir()
	d := earlierDisk(t, dir, sandboxes...)
	file, in := filepath.Join(dir, "moves"), filepath.Join(d.LayerPath(all[0].sandbox), claimLink)
	if err := errors.Join(os.WriteFile(file, []byte(lines), 0o600), os.Mkdir(in, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := d.finishEarlier(file); !errors.Is(err, fs.ErrExist) || !Exists(file) {
		t.Errorf("reported as done: %v", err)
	}
	if err := errors.Join(os.Remove(in), d.finishEarlier(file)); err != nil {
		t.Error(err)
	}
	isExecuted(t, d, all[0])
}

// FuzzDeferredClaim checks that a line parses to the claim that it was written from, or not at all.
func FuzzDeferredClaim(f *testing.F) {
	_, _, lines := newDeferredClaims(1)
	f.Add(strings.TrimSuffix(lines, "\n"))
	f.Add(strings.TrimSuffix(lines, "spare\n") + "-")
	f.Add("a b c -")
	f.Fuzz(func(t *testing.T, line string) {
		c, ok := parseDeferredClaim(line)
		last := map[bool]string{true: "spare", false: "-"}[c.prepared]
		if again := strings.Join([]string{c.sandbox, c.session, c.workspace, last}, " "); ok && again != line {
			t.Errorf("%q became %+v", line, c)
		}
	})
}
