package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtime/mountns"
)

// A Root says what a sandbox's root file system is made from.
type Root struct {
	Lowers      []string // the image's directories, topmost first; all below one directory
	Upper, Work string
}

// Directories of a bundle.
const (
	BundleRoot  = "rootfs" // mount point of the root file system, in the mount namespace of runc only
	BundleLower = "lower"  // mount point of the id-mapped image layers, in the same namespace
)

// Mount mounts the root file system in bundle dir, as RootFS describes it for a shim. The caller must be in a mount
// namespace of its own. Mount changes the working directory of the thread. After a failure, the mounts already made
// go away with the namespace.
func (l Root) Mount(dir string, b Spec) error {
	users, err := usersOf(b)
	if err != nil {
		return err
	}
	defer users.Close()
	// One id-mapped mount of the directory that holds all layers serves all of them. Paths relative to it are short,
	// and the kernel takes only one page of options.
	all, lower := commonDir(l.Lowers), filepath.Join(dir, BundleLower)
	if err := mountns.Bind(all, lower, unix.MOUNT_ATTR_RDONLY, users); err != nil {
		return fmt.Errorf("mapping the layers: %w", err)
	}
	var names []string
	for _, d := range l.Lowers {
		name, err := filepath.Rel(all, d)
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := unix.Chdir(lower); err != nil {
		return err
	}
	root := filepath.Join(dir, BundleRoot)
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile", strings.Join(names, ":"), l.Upper, l.Work)
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting the overlay: %w", err)
	}
	const harmless = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	for _, m := range []struct {
		from, to string
		attr     uint64
		users    *os.File
	}{
		{b.Workspace, InsideWorkspace, 0, users},
		{b.Run, InsideRun, harmless | unix.MOUNT_ATTR_NOEXEC, nil}, // on disk, the mapped root owns it
		{b.Guest, insideGuest, harmless | unix.MOUNT_ATTR_RDONLY, nil},
	} {
		if m.from == "" { // a pooled sandbox gets its workspace later
			continue
		}
		if err := mountns.Bind(m.from, filepath.Join(root, m.to), m.attr, m.users); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	return nil
}

// detached makes the mount that Mount makes, without attaching it anywhere.
func (l Root) detached(dir string, b Spec) (tree *os.File, err error) {
	err = mountns.InOwn(func() error {
		if err := l.Mount(dir, b); err != nil {
			return fmt.Errorf("mounting its root: %w", err)
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, filepath.Join(dir, BundleRoot),
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("taking its root along: %w", err)
		}
		tree = os.NewFile(uintptr(fd), BundleRoot)
		return nil
	})
	return tree, err
}

// usersOf opens the user namespace whose mapping the sandbox's files get. That is the namespace that the sandbox will
// run in. If runc makes that one, usersOf opens another one with the same numbers.
func usersOf(b Spec) (*os.File, error) {
	if b.UserNamespace != "" {
		return os.Open(b.UserNamespace)
	}
	return NewUserNamespace(b.Starter, 0, b.FirstID)
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
