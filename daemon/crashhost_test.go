package daemon_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The host's state after each crash must match the existing containers.

// A footprint counts items on the host beyond those of the workers' current containers.
type footprint struct {
	Workspaces, Layers, Bundles, Shims   int    // of all containers
	Runtimes, Cgroups, Mounts, Processes int    // of deleted containers
	Loops                                int    // loop devices of the daemon
	Snapshots, Unfinished                int    // of all containers
	Blobs                                int    // stored contents beyond those of stored files
	Temporary                            string // temporary files
}

// checkHost waits for the delayed cleanup of the kernel and the sweeper, and then compares. It also checks that the
// daemon reports no problem, its log has no error, and the audit log is complete.
func (c *crash) checkHost(t *testing.T) {
	var want footprint
	stored := 0
	for _, w := range c.workers {
		want.Workspaces += len(w.own) + len(w.spaces)
		want.Layers += len(w.own)
		want.Snapshots += len(w.snaps)
		stored += len(w.files)
	}
	want.Layers += warmMembers
	want.Bundles, want.Loops = want.Layers, 1
	c.awaitWarm(t)
	have := c.footprint(t, stored)
	for end := time.Now().Add(20 * time.Second); have != want && time.Now().Before(end); have = c.footprint(t, stored) {
	}
	if have != want {
		t.Errorf("on the host: %+v, want %+v; bundles %q", have, want, c.bundles())
	}
	if out, err := auditCLI(t, c.server, "verify", "--data", c.Dir); err != nil {
		t.Errorf("the audit log: %v %s", err, out)
	}
	for _, line := range strings.Split(c.Log(), "\n") {
		if strings.Contains(line, "level=ERROR") {
			t.Errorf("the daemon says: %s", line)
		}
	}
}

// bundles returns the bundle directories of running sandboxes.
func (c *crash) bundles() []string {
	var all []string
	for _, dir := range []string{"d", "c/io.containerd.runtime.v2.task/berth"} {
		list, _ := filepath.Glob(filepath.Join(c.rundir(), dir, "*")) // includes hidden ones
		all = append(all, list...)
	}
	return all
}

func (c *crash) footprint(t *testing.T, stored int) footprint {
	t.Helper()
	all := c.left(t)
	f := footprint{
		Workspaces: all.Workspaces, Layers: all.Layers, Bundles: all.Bundles, Shims: all.Shims, Loops: all.Loops,
		Snapshots: all.Snapshots, Unfinished: all.Unfinished, Blobs: max(0, all.Blobs-stored), Temporary: c.temporary(),
	}
	dead := c.dead(t)
	f.Cgroups = c.holds(t, dead).Cgroups
	for _, dir := range []string{"d", "r/berth"} {
		states, _ := os.ReadDir(filepath.Join(c.rundir(), dir))
		for _, s := range states {
			count(&f.Runtimes, namesAny(s.Name(), dead))
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		cmd, _ := os.ReadFile(p)
		count(&f.Processes, namesAny(string(cmd), dead))
	}
	for _, of := range []string{"self", fmt.Sprint(c.PID())} {
		mounts, _ := os.ReadFile("/proc/" + of + "/mountinfo")
		for line := range bytes.Lines(mounts) {
			count(&f.Mounts, namesAny(string(line), dead))
		}
	}
	return f
}

// see records the current sandboxes.
func (c *crash) see(t *testing.T) map[string]string {
	t.Helper()
	now := c.sandboxes(t)
	for name := range now {
		c.seen[name] = true
	}
	return now
}

// dead returns containers ever created that no worker has any more, and sandboxes that belong to no container and not
// to the warm pool.
func (c *crash) dead(t *testing.T) []string {
	t.Helper()
	now := c.see(t)
	live, made := map[string]bool{}, map[string]bool{}
	for _, w := range c.workers {
		for id := range w.own {
			live[id] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.made {
		made[id] = true
	}
	for name, of := range now {
		live[name] = live[of] || name == of && !made[of]
	}
	var dead []string
	for name := range c.seen {
		made[name] = true
	}
	for name := range made {
		if !live[name] {
			dead = append(dead, name)
		}
	}
	return dead
}

// temporary returns the names of temporary files in the data directory, without the disk pool, which the counts
// cover.
func (s *server) temporary() string {
	var found []string
	_ = filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // deleted meanwhile
		}
		if d.IsDir() && d.Name() == "runtime" {
			return fs.SkipDir
		}
		if !d.IsDir() && (strings.HasPrefix(d.Name(), "tmp") || strings.HasSuffix(d.Name(), ".new") ||
			filepath.Base(filepath.Dir(path)) == "tmp") {
			found = append(found, strings.TrimPrefix(path, s.Dir))
		}
		return nil
	})
	return strings.Join(found, " ")
}
