package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// rootLayers is what a sandbox's root file system is made of.
type rootLayers struct {
	lowers      []string // the image's directories, topmost first; all below one directory
	upper, work string
}

// inOwnMounts calls f on a thread that has a mount namespace of its own and ends with f. Programs that f starts
// inherit the namespace; once they have ended, or have made another, it is gone with all that f mounted.
func inOwnMounts(f func() error) error {
	done := make(chan error, 1)
	go offMain(func() {
		err := leaveMounts()
		if err == nil {
			err = f()
		}
		done <- err
	})
	return <-done
}

// leaveMounts gives this thread, which must end afterwards, a mount namespace of its own. What it mounts is seen by
// nobody else; what the host unmounts goes here too.
func leaveMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	return nil
}

// mount mounts the root file system in bundle dir, as rootfs describes it for a shim. It is called in a mount
// namespace of its own and changes the working directory of its thread. What a failure leaves goes with the namespace.
func (l rootLayers) mount(dir string, b blueprint) error {
	users, err := usersOf(b)
	if err != nil {
		return err
	}
	defer users.Close()
	// One mapped mount of the directory that holds all layers is enough for all of them. Relative to it their names
	// are short: the kernel takes one page of options.
	all, lower := commonDir(l.lowers), filepath.Join(dir, bundleLower)
	if err := bind(all, lower, unix.MOUNT_ATTR_RDONLY, users); err != nil {
		return fmt.Errorf("mapping the layers: %w", err)
	}
	var names []string
	for _, d := range l.lowers {
		name, err := filepath.Rel(all, d)
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := unix.Chdir(lower); err != nil {
		return err
	}
	root := filepath.Join(dir, bundleRoot)
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile", strings.Join(names, ":"), l.upper, l.work)
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting the overlay: %w", err)
	}
	const harmless = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	for _, m := range []struct {
		from, to string
		attr     uint64
		users    *os.File
	}{
		{b.workspace, insideWorkspace, 0, users},
		{b.run, insideRun, harmless | unix.MOUNT_ATTR_NOEXEC, nil}, // the mapped root owns it on disk
		{b.guest, insideGuest, harmless | unix.MOUNT_ATTR_RDONLY, nil},
	} {
		if m.from == "" { // a member of the warm pool gets its workspace later
			continue
		}
		if err := bind(m.from, filepath.Join(root, m.to), m.attr, m.users); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	return nil
}

// detached makes the mount that mount makes, without a place.
func (l rootLayers) detached(dir string, b blueprint) (tree *os.File, err error) {
	err = inOwnMounts(func() error {
		if err := l.mount(dir, b); err != nil {
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

// bind mounts what is at path from at path to, with the attributes more than it has, and mapped into a user namespace
// unless users is nil.
func bind(from, to string, attr uint64, users *os.File) error {
	tree, err := detach(from, attr, users)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return attach(tree, to)
}

// detach makes the mount that bind makes, without a place. The caller closes it.
func detach(from string, attr uint64, users *os.File) (tree int, err error) {
	tree, err = unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, err
	}
	set := unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}
	if users != nil {
		set.Attr_set |= unix.MOUNT_ATTR_IDMAP
		set.Userns_fd = uint64(users.Fd())
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &set); err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// attach gives a detached mount its place.
func attach(tree int, to string) error {
	return unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// usersOf opens the user namespace whose mapping the sandbox's files get: that which it will run in, or, if runc is
// to make that one, another with the same numbers.
func usersOf(b blueprint) (*os.File, error) {
	if b.userNamespace != "" {
		return os.Open(b.userNamespace)
	}
	return newUserNamespace(b.starter, 0, b.firstID)
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
