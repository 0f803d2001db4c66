package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtime/mountns"
)

// Root is what a sandbox's root file system is made of.
type Root struct {
	Lowers      []string // the image's directories, topmost first; all below one directory
	Upper, Work string
}

// Directories of a bundle.
const (
	BundleRoot  = "rootfs" // where the root file system is, in the mount namespace that runc gets and nowhere else
	BundleLower = "lower"  // there, the image's layers with the sandbox's numbers
)

// Mount mounts the root file system in bundle dir, as rootfs describes it for a shim. It is called in a mount
// namespace of its own and changes the working directory of its thread. What a failure leaves goes with the namespace.
func (l Root) Mount(dir string, b Spec) error {
	users, err := usersOf(b)
	if err != nil {
		return err
	}
	defer users.Close()
	// One mapped mount of the directory that holds all layers is enough for all of them. Relative to it their names
	// are short: the kernel takes one page of options.
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
		{b.Run, InsideRun, harmless | unix.MOUNT_ATTR_NOEXEC, nil}, // the mapped root owns it on disk
		{b.Guest, insideGuest, harmless | unix.MOUNT_ATTR_RDONLY, nil},
	} {
		if m.from == "" { // a member of the warm pool gets its workspace later
			continue
		}
		if err := mountns.Bind(m.from, filepath.Join(root, m.to), m.attr, m.users); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	return nil
}

// detached makes the mount that mount makes, without a place.
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

// usersOf opens the user namespace whose mapping the sandbox's files get: that which it will run in, or, if runc is
// to make that one, another with the same numbers.
func usersOf(b Spec) (*os.File, error) {
	if b.UserNamespace != "" {
		return os.Open(b.UserNamespace)
	}
	return NewUserNamespace(b.Starter, 0, b.FirstID)
}

// commonDir is the deepest directory that all dirs are below.
func commonDir(dirs []string) string {
	common := filepath.Dir(dirs[0])
	for _, d := range dirs[1:] {
		for common != "/" && !strings.HasPrefix(d, common+"/") {
			common = filepath.Dir(common)
		}
	}
	return common
}
