package containerd

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/launch"
	"berth/session"
)

// A warm sandbox was made with the limits of whoever asked last. Where the session's are others, they are set here,
// from the same numbers that newSpec and rlimits give to one that is made for its session.

// fitLimits changes the limits of m from those it has to those of spec. The sizes of its file systems in memory are
// set by resize, from inside.
func (r *Runtime) fitLimits(m *pooledSandbox, spec session.Spec) error {
	had, want := session.Spec{Class: spec.Class, Limits: m.limits}, session.Spec{Class: spec.Class, Limits: spec.Limits}
	if had.Limits == want.Limits {
		return nil
	}
	if err := cgroup.Change(m.name, cgroup.Resources(had.Class, had.Limits), cgroup.Resources(want.Class,
		want.Limits)); err != nil {
		return fmt.Errorf("limiting a warm container: %w", err)
	}
	if had.Limits.OpenFiles != want.Limits.OpenFiles {
		if !m.alive() { // its number may be another's by now
			return errGuestEnded
		}
		if err := launch.SetLimits(m.spec(want), m.pid); err != nil {
			return err
		}
	}
	if had.Limits.DiskBytes != want.Limits.DiskBytes {
		return r.disk.Limit(r.disk.LayerPath(m.name), want.Limits.DiskBytes)
	}
	return nil
}

// resize gives the file systems in memory the sizes that kernelMounts has for limits. Called inside the sandbox.
func resize(had, want proto.Limits) error {
	if had.MemoryBytes == want.MemoryBytes {
		return nil
	}
	for _, mnt := range launch.KernelMounts(want) {
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
