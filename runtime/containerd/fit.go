package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/session"
)

// A warm sandbox was made with the limits of whoever asked last. Where the session's are others, they are set here,
// from the same numbers that newSpec and rlimits give to one that is made for its session.

// fit changes the limits of m from those it has to those of spec. The sizes of its file systems in memory are set by
// resize, from inside.
func (r *Runtime) fit(m *member, spec session.Spec) error {
	had, want := session.Spec{Class: spec.Class, Limits: m.limits}, session.Spec{Class: spec.Class, Limits: spec.Limits}
	if had.Limits == want.Limits {
		return nil
	}
	if err := fitCgroups(m.name, newResources(had), newResources(want)); err != nil {
		return fmt.Errorf("limiting a warm container: %w", err)
	}
	if had.Limits.OpenFiles != want.Limits.OpenFiles {
		if !m.alive() { // its number may be another's by now
			return errGuestEnded
		}
		if err := setLimits(m.blueprint(want), m.pid); err != nil {
			return err
		}
	}
	if had.Limits.DiskBytes != want.Limits.DiskBytes {
		return r.disk.limit(r.disk.layerPath(m.name), want.Limits.DiskBytes)
	}
	return nil
}

// resize gives the file systems in memory the sizes that kernelMounts has for limits. Called inside the sandbox.
func resize(had, want proto.Limits) error {
	if had.MemoryBytes == want.MemoryBytes {
		return nil
	}
	for _, mnt := range kernelMounts(want) {
		if mnt.Destination != "/tmp" && mnt.Destination != "/dev/shm" {
			continue
		}
		sizes := slices.DeleteFunc(mnt.Options, func(o string) bool {
			return !strings.HasPrefix(o, "size=") &&
				!strings.HasPrefix(o, "nr_inodes=")
		})
		// The flags of the mount are said again, or they would be taken off.
		if err := unix.Mount("", mnt.Destination, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV,
			strings.Join(sizes, ",")); err != nil {
			return fmt.Errorf("resizing %s: %w", mnt.Destination, err)
		}
	}
	return nil
}

// A setting is a file of a cgroup with what is to be in it. It is in the directory of its controller (v1) or of the
// sandbox (v2).
type setting struct{ controller, v1, v1Value, v2, v2Value string }

// settings are what res sets, in the order in which limits can grow.
func settings(res *specs.LinuxResources) []setting {
	num := func(n int64) string { return strconv.FormatInt(n, 10) }
	quota, period := num(*res.CPU.Quota), strconv.FormatUint(*res.CPU.Period, 10)
	memory, pids := num(*res.Memory.Limit), num(*res.Pids.Limit)
	return []setting{
		{"cpu", "cpu.cfs_quota_us", quota, "cpu.max", quota + " " + period},
		// on v2 swap is counted apart, and stays at none
		{"memory", "memory.memsw.limit_in_bytes", num(*res.Memory.Swap), "", ""},
		{"memory", "memory.limit_in_bytes", memory, "memory.max", memory},
		{"pids", "pids.max", pids, "pids.max", pids},
	}
}

// fitCgroups writes what of the settings is another one now. On v1 memory must never exceed memory with swap, on
// the way neither, so what shrinks is written the other way round.
func fitCgroups(name string, had, want *specs.LinuxResources) error {
	now, then := settings(want), settings(had)
	if *want.Memory.Limit < *had.Memory.Limit {
		now[1], now[2], then[1], then[2] = now[2], now[1], then[2], then[1]
	}
	for i, s := range now {
		if s == then[i] {
			continue
		}
		if err := s.write(name); err != nil {
			return err
		}
	}
	return nil
}

func (s setting) write(name string) error {
	file, value := s.v1, s.v1Value
	dir, v2 := cgroupOf(name, s.controller)
	if v2 {
		if file, value = s.v2, s.v2Value; file == "" {
			return nil
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) && s.v2 == "" { // a kernel that does not count swap
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
