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

// Root is where the host mounts its cgroups: one hierarchy (v2), or one directory for
// each controller (v1), or both (hybrid).
const Root = "/sys/fs/cgroup"

// Parent is the cgroup that holds those of all sandboxes, in every hierarchy.
const Parent = "berth"

// Dirs are the cgroups of sandbox id, in every hierarchy.
func Dirs(id string) (dirs []string) {
	// Each is asked for by its path. A pattern would have to read what all other sandboxes have, too.
	hierarchies, _ := os.ReadDir(Root) // no cgroups, none of ours
	for _, h := range hierarchies {
		if !h.IsDir() { // nor a link, as to cpu,cpuacct from cpu
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

// belowCgroup are the cgroups in a cgroup.
func belowCgroup(dir string) (below []string) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil || st.Nlink == 2 { // the directory and itself: there are none
		return nil
	}
	entries, _ := os.ReadDir(dir) // it may have gone
	for _, e := range entries {
		if e.IsDir() {
			below = append(below, filepath.Join(dir, e.Name()))
		}
	}
	return below
}

// Dir is where a controller of sandbox id is: v1's own hierarchy if the host has that, else v2's. Whether it is
// there is not said.
func Dir(id, controller string) (dir string, v2 bool) {
	if dir = filepath.Join(Root, controller, Parent, id); IsDir(dir) {
		return dir, false
	}
	return filepath.Join(Root, Parent, id), true
}

// Kill kills every process of sandbox id, whatever it calls itself.
func Kill(id string) {
	for _, dir := range Dirs(id) {
		killCgroup(dir)
	}
}

// killCgroup kills what is in a cgroup and in those below.
func killCgroup(dir string) {
	killListed(filepath.Join(dir, "cgroup.procs"))
	for _, below := range belowCgroup(dir) {
		killCgroup(below)
	}
}

// killListed kills the processes that a cgroup.procs file lists. A number may have been given to another
// process since it was read, but only within microseconds, and numbers are not reused that soon.
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

// Remove removes the cgroups that the runtime of sandbox id left behind. A killed process stays
// in its cgroup for a moment, and v1 has no event for its leaving.
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

// removeCgroup removes dir and the cgroups that something inside made below it.
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
