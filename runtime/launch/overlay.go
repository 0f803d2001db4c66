package launch

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
)

// RootFS is everything of a sandbox's file system that comes from the host, for the shim to mount:
// as the host's root, before the runtime enters the user namespace, so that no
// directory on the way needs to be open to anybody.
//
// The image's layers and the workspace are id-mapped into the sandbox's range. No file is
// copied or changed, files of the workspace keep on disk the numbers they have inside, and
// the next sandbox, with another range, takes them over as they are. It could be done by the
// runtime as well (uidMappings of an OCI mount), but then containerd asks runc before each create
// whether it can.
func RootFS(b Spec, lowers []string, upper, work string) []mount.Mount {
	ids := IDMapping(b.FirstID)
	mapped := []string{"uidmap=" + ids, "gidmap=" + ids}
	mounts := []mount.Mount{
		{
			// volatile: nothing waits for the disk. The layer never outlives its sandbox, and
			// without it each removal would sync the whole pool.
			Type: "overlay", Source: "overlay",
			Options: append([]string{
				"lowerdir=" + strings.Join(lowers, ":"), "upperdir=" + upper, "workdir=" + work, "volatile", "nodev",
			}, mapped...),
		},
		// The mapped root owns this one on disk.
		{Type: "bind", Source: b.Run, Target: InsideRun, Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}},
		{Type: "bind", Source: b.Guest, Target: insideGuest, Options: []string{"bind", "ro", "nosuid", "nodev"}},
	}
	if b.Workspace == "" { // a member of the warm pool gets it later
		return mounts
	}
	return append(mounts, mount.Mount{
		Type: "bind", Source: b.Workspace, Target: InsideWorkspace,
		Options: append([]string{"bind", "rw"}, mapped...),
	})
}

// MakeMountPoints makes what rootfs and the runtime mount on, in the layer and so above whatever the image has
// there: an image's symlink at /workspace or /proc leads nowhere, and a file is no reason to fail.
func MakeMountPoints(upper string, owner uint32) error {
	for _, dir := range []string{"/.berth", InsideRun, InsideWorkspace, "/proc", "/sys", "/dev", "/tmp"} {
		path := filepath.Join(upper, dir)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		if err := os.Chown(path, int(owner), int(owner)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(upper, insideGuest), nil, 0o755)
}
