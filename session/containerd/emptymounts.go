package containerd

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Directories of the empty mounts.
const (
	emptyRoot = "/root"
	emptySys  = "/sys"
	emptyProc = emptySys + "/kernel" // one of sysfs's, so that one unmount is enough for both
)

// newEmptyMounts makes a mount namespace with nothing in it but three empty directories, which cannot be written to. Scripts take a copy of it, and cover its root by
// the sandbox's. The namespace ends with the file. The directory dir exists; nothing of it is changed.
func newEmptyMounts(dir string) (*os.File, error) {
	var ns *os.File
	err := inOwnMounts(func() (err error) {
		if ns, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/mnt", unix.Gettid())); err != nil {
			return err
		}
		return leaveAllMounts(dir)
	})
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("making a mount namespace that is empty: %w", err)
	}
	return ns, nil
}

// leaveAllMounts has this thread's mount namespace, which nobody else has, lose all that is in it.
func leaveAllMounts(dir string) error {
	const inert = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", dir, "tmpfs", inert, "mode=755"); err != nil {
		return err
	}
	for _, name := range []string{emptyRoot, emptySys} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|inert, ""); err != nil {
		return err
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	return unix.Unmount(".", unix.MNT_DETACH)
}
