package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"berth/runtime/diskpool"
	"berth/runtime/forkserver"
	"berth/runtime/mountns"
)

// checkMounts mounts as a sandbox would: an overlay, and an overlay over an id-mapped directory. Kernels report
// little about which of their file systems support that.
func checkMounts(ctx context.Context) []Finding {
	var overlayErr, mapErr error
	if err := aside(ctx, func(dir string) {
		overlayErr = tryOverlay(dir, nil)
		ids := forkserver.IDMapping(diskpool.DefaultFirst)
		mapErr = tryOverlay(dir, []string{"uidmap=" + ids, "gidmap=" + ids})
	}); err != nil {
		overlayErr, mapErr = err, err
	}
	return []Finding{
		tried("overlayfs", overlayErr, "images are layers below a writable one", "use a kernel with overlayfs "+
			"(modprobe overlay), as root"),
		tried("id-mapped mounts", mapErr, "files of an image must not be copied for each container's user IDs",
			"use Linux 5.19 or newer, and ext4, XFS or btrfs for the data directory and /tmp"),
	}
}

func tried(name string, err error, why, fix string) Finding {
	if err != nil {
		return Finding{name, Fail, err.Error(), why, fix}
	}
	return good(name, "tried, works")
}

// aside calls try with a new directory, on a thread with a mount namespace of its own that ends with the thread. Its
// mounts are visible nowhere else.
func aside(ctx context.Context, try func(dir string)) error {
	dir, err := os.MkdirTemp("", "berth-doctor-")
	if err != nil {
		return errors.New("no directory for temporary files can be made")
	}
	defer os.RemoveAll(dir)
	done := make(chan error, 1)
	go mountns.OffMain(func() {
		if err := mountns.Leave(); err != nil {
			done <- err
			return
		}
		try(dir)
		done <- nil
	})
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryOverlay mounts an overlay in dir with the additional options in more.
func tryOverlay(dir string, more []string) error {
	root, err := os.MkdirTemp(dir, "try-")
	if err != nil {
		return err
	}
	for _, sub := range []string{"lower/a", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o755); err != nil {
			return err
		}
	}
	m := mount.Mount{Type: "overlay", Source: "overlay", Options: append([]string{
		"lowerdir=" + filepath.Join(root, "lower/a"), "upperdir=" + filepath.Join(root, "upper"),
		"workdir=" + filepath.Join(root, "work"),
	}, more...)}
	merged := filepath.Join(root, "merged")
	if err := m.Mount(merged); err != nil {
		return rootCause(err)
	}
	return unix.Unmount(merged, unix.MNT_DETACH)
}

// rootCause strips paths of the host from the error of a finding.
func rootCause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return errors.New("the mount is refused")
}
