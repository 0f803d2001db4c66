package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtime/forkserver"
	"berth/runtime/layer"
	"berth/runtime/mountns"
)

// Directories of a bundle.
const (
	bundleRoot  = "rootfs" // mount point of the root file system, in the mount namespace of runc only
	bundleLower = "lower"  // mount point of the id-mapped image layers, in the same namespace
	bundleLayer = "layer"  // mount point of the id-mapped writable layer, in the same namespace
)

// mountRoot mounts everything of a sandbox's file system that comes from the host, at the root of bundle dir. The
// caller must be on a thread with a mount namespace of its own that ends afterwards. mountRoot changes the thread's
// working directory. After a failure, the mounts already made go away with the namespace.
//
// The image's layers, the writable layer and the workspace are id-mapped into the sandbox's range. No file is copied
// or changed. On disk, files keep the owners that they have inside, and the next sandbox, with another range, uses
// them as they are. The runtime could map the workspace as well (uidMappings of an OCI mount), but then containerd
// asks runc before each create whether runc can do that.
func mountRoot(dir string, b *Sandbox) error {
	users, err := usersOf(b)
	if err != nil {
		return err
	}
	defer users.Close()
	lowers, err := enterLowers(filepath.Join(dir, bundleLower), b.Lowers, users)
	if err != nil {
		return err
	}
	if err := mountns.Bind(b.Layer, filepath.Join(dir, bundleLayer), 0, users); err != nil {
		return fmt.Errorf("mapping the writable layer: %w", err)
	}
	// volatile: no write waits for the disk, and a removal does not sync the whole pool. The pool's file system
	// commits every 30 seconds, each time with all that was written before.
	root, beside := filepath.Join(dir, bundleRoot), filepath.Join("..", bundleLayer)
	options := fmt.Sprintf("%s,upperdir=%s,workdir=%s,volatile", lowers,
		filepath.Join(beside, layer.Upper), filepath.Join(beside, layer.Work))
	err = mountns.AsUser(b.FirstID, func() error {
		return unix.Mount("overlay", root, "overlay", unix.MS_NODEV, options)
	})
	if err != nil {
		return fmt.Errorf("mounting the overlay: %w", err)
	}
	const harmless = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	for _, m := range []struct {
		from, to string
		attr     uint64
		users    *os.File
	}{
		{b.Workspace, layer.InsideWorkspace, 0, users},
		{b.Run, layer.InsideRun, harmless | unix.MOUNT_ATTR_NOEXEC, nil}, // on disk, the mapped root owns it
		{b.Guest, layer.InsideGuest, harmless | unix.MOUNT_ATTR_RDONLY, nil},
	} {
		if m.from == "" { // a pooled sandbox gets its workspace later
			// The first look at a directory that the image has, too, has the overlay note that in the layer. After
			// layer.Mark, it would count as a change.
			if _, err := os.Lstat(filepath.Join(root, m.to)); err != nil {
				return err
			}
			continue
		}
		if err := mountns.Bind(m.from, filepath.Join(root, m.to), m.attr, m.users); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	if err := mountHosts(root, b.Run); err != nil {
		return fmt.Errorf("mounting %s: %w", layer.InsideHosts, err)
	}
	return nil
}

// enterLowers maps the lower directories of an overlay to users and returns the option that names them. They are
// relative to the directory at, which becomes this thread's working directory. One id-mapped mount of the directory
// that holds all of them serves all. Relative paths are short, and the kernel takes only one page of options. Also, the
// sandbox can read the options, and learns no path.
func enterLowers(at string, lowers []string, users *os.File) (option string, err error) {
	all := commonDir(lowers)
	if err := mountns.Bind(all, at, unix.MOUNT_ATTR_RDONLY, users); err != nil {
		return "", fmt.Errorf("mapping the layers: %w", err)
	}
	var names []string
	for _, d := range lowers {
		name, err := filepath.Rel(all, d)
		if err != nil {
			return "", err
		}
		names = append(names, name)
	}
	return "lowerdir=" + strings.Join(names, ":"), unix.Chdir(at)
}

// mountHosts mounts the sandbox's own file of host names. If its place is not a file any more, or behind a symlink, it
// is what earlier code of the sandbox has put there, and stays.
func mountHosts(root, run string) error {
	tree, err := mountns.Detach(filepath.Join(run, layer.Hosts),
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, nil)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	top, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	place, err := unix.Openat2(top, strings.TrimPrefix(layer.InsideHosts, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return nil
	default:
		return err
	}
	defer unix.Close(place)
	err = unix.MoveMount(tree, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err == unix.ENOTDIR { // a directory
		return nil
	}
	return err
}

// detachedRoot makes the mount that mountRoot makes, without attaching it anywhere.
func detachedRoot(dir string, b *Sandbox) (tree *os.File, err error) {
	err = mountns.InOwn(func() error {
		if err := mountRoot(dir, b); err != nil {
			return fmt.Errorf("mounting its root: %w", err)
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, filepath.Join(dir, bundleRoot),
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("taking its root along: %w", err)
		}
		tree = os.NewFile(uintptr(fd), bundleRoot)
		return nil
	})
	return tree, err
}

// usersOf opens the user namespace whose mapping the sandbox's files get. That is the namespace that the sandbox will
// run in. If runc makes that one, usersOf opens another one with the same numbers.
func usersOf(b *Sandbox) (*os.File, error) {
	if b.UserNamespace != "" {
		return os.Open(b.UserNamespace)
	}
	return forkserver.NewUserNamespace(b.Server, 0, b.FirstID)
}

// commonDir returns the deepest directory that contains all dirs.
func commonDir(dirs []string) string {
	common := filepath.Dir(dirs[0])
	for _, d := range dirs[1:] {
		for common != "/" && !strings.HasPrefix(d, common+"/") {
			common = filepath.Dir(common)
		}
	}
	return common
}
