package daemontest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// bootFile is where the kernel tells the boot ID.
const bootFile = "/proc/sys/kernel/random/boot_id"

// lossMost is how long the processes of a lost host may take to end.
const lossMost = time.Minute

// RunDir returns the directory of the daemon's sockets and mount points below /run.
func (d *Daemon) RunDir() string {
	sum := sha256.Sum256([]byte(filepath.Join(d.Dir, "runtime")))
	return filepath.Join("/run/berth", hex.EncodeToString(sum[:8]))
}

// LoseHost takes from the daemon what a reboot takes: its process and all its sandboxes, with their mounts, cgroups and
// loop devices, and its files below /run. The next Start runs the daemon under another boot ID. The daemon must run.
//
// Data that the daemon has written but not synced stays, unlike after a power cut.
func (d *Daemon) LoseHost() error {
	if err := syscall.Kill(d.PID(), syscall.SIGSTOP); err != nil { // it makes no further sandbox
		return fmt.Errorf("stopping the daemon: %w", err)
	}
	names, err := d.sandboxes()
	if err != nil {
		return err
	}
	d.Stop(syscall.SIGKILL)
	marks := append(names, d.RunDir(), d.Dir)
	err = within(lossMost, "processes", func() (left []string) {
		for _, pid := range processesWith(marks) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another one
			left = append(left, strconv.Itoa(pid))
		}
		return left
	})
	if err == nil {
		err = within(lossMost, "cgroups", func() []string { return removeGroups(names) })
	}
	if err == nil { // the last mount of the pool went with the last process; the kernel clears the device after it
		err = within(lossMost, "loop devices", d.loops)
	}
	if err == nil {
		err = os.RemoveAll(d.RunDir())
	}
	if err == nil {
		err = d.changeBoot()
	}
	return err
}

// sandboxes returns the names of the sandboxes. The daemon's mounts are in a namespace of its own.
func (d *Daemon) sandboxes() ([]string, error) {
	list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(d.PID()), "root", d.Dir, "runtime/pool/layer"))
	names := make([]string, 0, len(list))
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, err
}

// within repeats do until it leaves nothing.
func within(most time.Duration, what string, do func() (left []string)) error {
	for end := time.Now().Add(most); ; time.Sleep(5 * time.Millisecond) {
		left := do()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %v there are still %s: %s", most, what, strings.Join(left, ", "))
		}
	}
}

// processesWith returns the processes that have one of the texts in their command line or cgroup. Those that have ended
// and were not waited for are left out: they have no command line, and their parent may never wait for them.
func processesWith(texts []string) (pids []int) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil || pid == os.Getpid() {
			continue
		}
		about, _ := os.ReadFile(p + "/cmdline")
		if len(about) == 0 {
			continue
		}
		group, _ := os.ReadFile(p + "/cgroup")
		about = append(about, group...)
		for _, text := range texts {
			if bytes.Contains(about, []byte(text)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// removeGroups removes the cgroups of sandboxes in every hierarchy, and returns those that it could not.
func removeGroups(names []string) (left []string) {
	parents, _ := filepath.Glob("/sys/fs/cgroup/*/berth")
	for _, parent := range append(parents, "/sys/fs/cgroup/berth") {
		for _, name := range names {
			var dirs []string
			_ = filepath.WalkDir(filepath.Join(parent, name), func(dir string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					dirs = append(dirs, dir)
				}
				return nil // it may not exist in this hierarchy
			})
			for i := len(dirs) - 1; i >= 0; i-- {
				if err := os.Remove(dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
					left = append(left, dirs[i])
				}
			}
		}
	}
	return left
}

// loops returns the loop devices over files of the data directory.
func (d *Daemon) loops() (held []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if of, _ := os.ReadFile(file); bytes.HasPrefix(of, []byte(d.Dir+"/")) {
			held = append(held, filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return held
}

// changeBoot gives the daemon a boot ID that no host had. A program that starts the daemon in a mount namespace mounts
// a file with the ID over the kernel's. A second proc, with nothing mounted over it, is there for the kernel: without
// one that shows all, it lets no user namespace mount its own, and no step of a build would run.
func (d *Daemon) changeBoot() (err error) {
	if d.boot == "" {
		if d.boot, err = os.MkdirTemp("", "berth-boot-"); err != nil {
			return err
		}
	}
	bin, err := Binary()
	if err != nil {
		return err
	}
	id := filepath.Join(d.boot, uuid.NewString()) // the old file stays for mounts of it
	if err := os.WriteFile(id, []byte(filepath.Base(id)+"\n"), 0o644); err != nil {
		return err
	}
	proc := filepath.Join(d.boot, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		return err
	}
	start := fmt.Sprintf("#!/bin/sh\nexec unshare --mount --propagation slave sh -c "+
		"'mount -t proc proc %s && mount --bind %s %s && exec \"$0\" \"$@\"' %s \"$@\"\n", proc, id, bootFile, bin)
	return os.WriteFile(filepath.Join(d.boot, "start"), []byte(start), 0o755)
}

// program returns the program that runs the daemon.
func (d *Daemon) program() (string, error) {
	if d.boot != "" {
		return filepath.Join(d.boot, "start"), nil
	}
	return Binary()
}
