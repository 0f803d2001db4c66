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

// A pooled sandbox was made with the limits of the latest session at that time. If the session's limits differ, they
// are set here. They come from the same numbers from which launch.OCISpec makes those of a sandbox that is made for
// its session.

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
		if !m.alive() { // another process may have its number by now
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

// resize gives the file systems in memory the sizes that launch.KernelMounts has for these limits. Call it inside the
// sandbox.
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
		// A remount without the mount's flags would remove them.
		if err := unix.Mount("", mnt.Destination, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV,
			strings.Join(sizes, ",")); err != nil {
			return fmt.Errorf("resizing %s: %w", mnt.Destination, err)
		}
	}
	return nil
}
