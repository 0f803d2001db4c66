package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where the host mounts its cgroups: one hierarchy (v2), one directory per controller (v1), or both (hybrid).
const Root = "/sys/fs/cgroup"

// Parent is the parent cgroup of all sandboxes, in every hierarchy.
const Parent = "berth"

// Dirs returns the cgroups of sandbox id, in every hierarchy.
func Dirs(id string) (dirs []string) {
	// Look up each hierarchy by path. A glob pattern would also read the cgroups of all other sandboxes.
	hierarchies, _ := os.ReadDir(Root) // without cgroups a sandbox has none
	for _, h := range hierarchies {
		if !h.IsDir() { // skip links too, such as cpu to cpu,cpuacct
			continue
		}
		if dir := filepath.Join(Root, h.Name(), Parent, id); IsDir(dir) {
			dirs = append(dirs, dir)
		}
	}
	if v2 := filepath.Join(Root, Parent, id); IsDir(v2) {
		dirs = append(dirs, v2)
	}
	return dirs
}

// belowCgroup lists the child cgroups of a cgroup.
func belowCgroup(dir string) (below []string) {
	var st unix.Stat_t
	// two links, to the directory and to itself: no children
	if err := unix.Stat(dir, &st); err != nil || st.Nlink == 2 {
		return nil
	}
	entries, _ := os.ReadDir(dir) // it may have been removed
	for _, e := range entries {
		if e.IsDir() {
			below = append(below, filepath.Join(dir, e.Name()))
		}
	}
	return below
}

// Dir returns the directory of a controller of sandbox id: in v1's hierarchy if the host has that controller there,
// else in v2's. The directory need not exist.
func Dir(id, controller string) (dir string, v2 bool) {
	if dir = filepath.Join(Root, controller, Parent, id); IsDir(dir) {
		return dir, false
	}
	return filepath.Join(Root, Parent, id), true
}

// Kill kills every process of sandbox id, found by cgroup.
func Kill(id string) {
	for _, dir := range Dirs(id) {
		killCgroup(dir)
	}
}

// killCgroup kills the processes in a cgroup and in its children.
func killCgroup(dir string) {
	killListed(filepath.Join(dir, "cgroup.procs"))
	for _, below := range belowCgroup(dir) {
		killCgroup(below)
	}
}

// killListed kills the processes that a cgroup.procs file lists. The kernel could reuse a PID only in the
// microseconds since the read, and it does not reuse PIDs that soon.
func killListed(procs string) {
	list, err := os.ReadFile(procs)
	if err != nil {
		return
	}
	for _, field := range strings.Fields(string(list)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// Remove removes the cgroups that the runtime of sandbox id left behind. A killed process stays in its cgroup for a
// moment, and v1 sends no event when it leaves.
func Remove(ctx context.Context, id string) error {
	for {
		var errs error
		for _, dir := range Dirs(id) {
			if err := removeCgroup(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = errors.Join(errs, err)
			}
		}
		if errs == nil {
			return nil
		}
		Kill(id)
		select {
		case <-ctx.Done():
			return errs
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// removeCgroup removes dir and the cgroups that a process inside made below it.
func removeCgroup(dir string) error {
	for _, below := range belowCgroup(dir) {
		if err := removeCgroup(below); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

func IsDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
