package diskpool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// Earlier builds gave each pooled sandbox an empty workspace before a session took it. That workspace had a name
// derived from the sandbox's ID. They also wrote claims to a file first and changed the disk pool later. This file
// brings a data directory of such a build to today's form.

// A deferredClaim is one line of the file of claims of an earlier build.
type deferredClaim struct {
	sandbox, session, workspace string
	prepared                    bool // the workspace is the one that the sandbox already had
}

// parseDeferredClaim reads "SANDBOX SESSION WORKSPACE spare" or "SANDBOX SESSION WORKSPACE -".
func parseDeferredClaim(line string) (c deferredClaim, ok bool) {
	f := strings.Split(line, " ")
	if len(f) != 4 || f[3] != "spare" && f[3] != "-" {
		return c, false
	}
	c = deferredClaim{f[0], f[1], f[2], f[3] == "spare"}
	return c, proto.ValidID(proto.ContainerPrefix, c.sandbox) && proto.ValidID(proto.ContainerPrefix, c.session) &&
		proto.ValidID(proto.WorkspacePrefix, c.workspace)
}

// preparedPath returns where an earlier build kept the workspace that it had prepared for a sandbox.
func (d *Pool) preparedPath(sandbox string) string {
	return d.WorkspacePath(proto.WorkspacePrefix + strings.TrimPrefix(sandbox, proto.ContainerPrefix))
}

// finishEarlier executes the claims in file, removes prepared workspaces that no session took, and then removes file.
// It can run again after a crash at any point. It fails if a claim cannot be executed, because the session's files
// would otherwise be removed with the sandbox.
func (d *Pool) finishEarlier(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the claims of an earlier build: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		// A line cut short by a crash was never reported to a caller.
		c, ok := parseDeferredClaim(strings.TrimSuffix(line, "\n"))
		if !ok {
			continue
		}
		if err := d.executeDeferred(c); err != nil {
			return fmt.Errorf("executing the claims of an earlier build in %s: %w", file, err)
		}
	}
	layers, err := d.Layers()
	if err != nil {
		return err
	}
	for _, sandbox := range layers {
		if err := d.remove(d.preparedPath(sandbox)); err != nil {
			return fmt.Errorf("removing a workspace that an earlier build prepared: %w", err)
		}
	}
	// A still earlier build kept prepared workspaces in a directory of their own.
	dir := filepath.Join(d.root, "spare")
	list, _ := Names(dir)
	for _, name := range list {
		_ = d.remove(filepath.Join(dir, name))
	}
	_ = os.Remove(dir)
	return os.Remove(file)
}

// executeDeferred gives the workspace its name and writes the claim into the layer. Parts of it may have been done
// before. The sandbox may have been removed since.
func (d *Pool) executeDeferred(c deferredClaim) error {
	if c.prepared {
		err := renameNew(d.preparedPath(c.sandbox), d.WorkspacePath(c.workspace))
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("naming workspace %s: %w", c.workspace, err)
		}
	}
	claim := Claim{Session: c.session, Workspace: c.workspace}
	err := d.WriteClaim(c.sandbox, claim)
	if errors.Is(err, fs.ErrExist) {
		if had, _ := d.ReadClaim(c.sandbox); had == claim {
			return nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
