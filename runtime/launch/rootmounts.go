package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"

	"berth/runtime/forkserver"
	"berth/runtime/ocispec"
)

// rootMounts returns the mounts that make up everything of a sandbox's file system that comes from the host. The shim
// mounts them as the host's root, before the runtime enters the user namespace. So no directory on the way needs to
// be open to other users.
//
// The image's layers and the workspace are id-mapped into the sandbox's range. No file is copied or changed. Files of
// the workspace keep on disk the owners that they have inside, and the next sandbox, with another range, uses them as
// they are. The runtime could map them as well (uidMappings of an OCI mount), but then containerd asks runc before
// each create whether runc can do that.
func rootMounts(b *Sandbox) []mount.Mount {
	ids := forkserver.IDMapping(b.FirstID)
	mapped := []string{"uidmap=" + ids, "gidmap=" + ids}
	mounts := []mount.Mount{
		{
			// volatile: no write waits for the disk. The layer never outlives its sandbox, and without this option
			// each removal would sync the whole pool.
			Type: "overlay", Source: "overlay",
			Options: append([]string{
				"lowerdir=" + strings.Join(b.Lowers, ":"), "upperdir=" + b.Upper, "workdir=" + b.Work, "volatile",
				"nodev",
			}, mapped...),
		},
		// On disk, the mapped root owns this directory.
		{Type: "bind", Source: b.Run, Target: ocispec.InsideRun,
			Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}},
		{Type: "bind", Source: b.Guest, Target: ocispec.InsideGuest,
			Options: []string{"bind", "ro", "nosuid", "nodev"}},
	}
	if b.Workspace == "" { // a pooled sandbox gets its workspace later
		return mounts
	}
	return append(mounts, mount.Mount{
		Type: "bind", Source: b.Workspace, Target: ocispec.InsideWorkspace,
		Options: append([]string{"bind", "rw"}, mapped...),
	})
}

// MakeMountPoints makes the mount points that rootMounts and the runtime use. It makes them in the layer, and so
// above the image's files: a symlink of the image at /workspace or /proc leads nowhere, and a file there causes no
// failure.
func MakeMountPoints(upper string, owner uint32) error {
	for _, dir := range []string{"/.berth", ocispec.InsideRun, ocispec.InsideWorkspace, "/proc", "/sys", "/dev",
		"/tmp"} {
		path := filepath.Join(upper, dir)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		if err := os.Chown(path, int(owner), int(owner)); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(filepath.Join(upper, ocispec.InsideGuest), nil, 0o755), makeHosts(upper, owner))
}

// makeHosts makes the mount point of the file with the sandbox's own name. It goes above the image's directory, whose
// other files stay visible.
func makeHosts(upper string, owner uint32) error {
	dir, file := filepath.Dir(ocispec.InsideHosts), ocispec.InsideHosts
	if err := os.Mkdir(filepath.Join(upper, dir), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(upper, file), nil, 0o644),
		os.Chown(filepath.Join(upper, dir), int(owner), int(owner)),
		os.Chown(filepath.Join(upper, file), int(owner), int(owner)))
}
