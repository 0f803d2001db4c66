package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/build/wire"
	"berth/runtime/layer"
	"berth/runtime/mountns"
	"berth/runtime/ocispec"
)

// mountTrees mounts the trees of b in bundle dir, and adds to b's configuration how the runtime is to attach them. The
// runtime makes the mount points, as root of the sandbox. The caller must be in a mount namespace of its own.
//
// Each tree is mapped to the sandbox's users: what a step writes belongs on disk to the users that it has inside, as in
// every image.
func mountTrees(dir string, b *Sandbox) error {
	users, err := usersOf(b)
	if err != nil {
		return err
	}
	defer users.Close()
	root := filepath.Join(dir, bundleRoot)
	first := b.Trees[0]
	b.Stubs = &Stubs{upper: first.Upper, times: map[string]unix.Timespec{}}
	written := first
	if first.Upper == "" && len(first.Lowers) > 0 { // what it writes is dropped
		written.Upper, written.Work = b.Upper, b.Work
	}
	if err := mountTree(dir, b, written, root, users); err != nil {
		return fmt.Errorf("mounting the root of a step: %w", err)
	}
	mounts := []specs.Mount{
		{Type: "bind", Source: b.Run, Destination: layer.InsideRun,
			Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}},
		{Type: "bind", Source: b.Guest, Destination: layer.InsideGuest,
			Options: []string{"bind", "ro", "nosuid", "nodev"}},
	}
	for i, t := range b.Trees[1:] {
		m, err := attachment(dir, b, strconv.Itoa(i), t, users)
		if err != nil {
			return fmt.Errorf("mounting %s of a step: %w", t.Target, err)
		}
		mounts = append(mounts, m)
	}
	if first.Upper != "" {
		if err := b.Stubs.find(root, append(mounts, ocispec.WithoutFilter(b.Spec).Mounts...)); err != nil {
			return fmt.Errorf("looking for mount points: %w", err)
		}
	}
	b.Mounts = mounts
	return nil
}

// attachment mounts a tree below bundle dir and returns how the runtime attaches it.
func attachment(dir string, b *Sandbox, name string, t wire.Tree, users *os.File) (m specs.Mount, err error) {
	if t.Memory > 0 {
		return specs.Mount{Type: "tmpfs", Source: "tmpfs", Destination: t.Target, Options: []string{"nosuid", "nodev",
			"mode=1777", fmt.Sprintf("size=%d", t.Memory)}}, nil
	}
	if t.Secret != nil {
		return secretFile(dir, b, "secret-"+name, t)
	}
	at, err := mountPoint(dir, "tree-"+name, t)
	if err != nil {
		return m, err
	}
	if err := mountTree(dir, b, t, at, users); err != nil {
		return m, err
	}
	if t.Selector != "" && t.Selector != "/" && t.Selector != "." {
		if at, err = selected(dir, name, at, t.Selector); err != nil {
			return m, err
		}
	}
	access := "rw"
	if t.ReadOnly {
		access = "ro"
	}
	return specs.Mount{Type: "bind", Source: at, Destination: t.Target,
		Options: []string{"bind", access, "nosuid", "nodev"}}, nil
}

// secretFile writes a secret into a file system of its own, in memory that is never swapped out, and returns how the
// runtime attaches the file. The file system ends with the sandbox: no other mount of it is left.
func secretFile(dir string, b *Sandbox, name string, t wire.Tree) (m specs.Mount, err error) {
	at := filepath.Join(dir, name)
	if err := os.Mkdir(at, 0o700); err != nil {
		return m, err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("ramfs", at, "ramfs", flags, "mode=0755"); err != nil {
		return m, fmt.Errorf("making memory for a secret: %w", err)
	}
	file := filepath.Join(at, "secret")
	if err := os.WriteFile(file, t.Secret.Data, 0o600); err != nil {
		return m, err
	}
	if err := os.Chown(file, int(b.FirstID+t.Secret.UID), int(b.FirstID+t.Secret.GID)); err != nil {
		return m, err
	}
	return specs.Mount{Type: "bind", Source: file, Destination: t.Target,
		Options: []string{"bind", "ro", "nosuid", "nodev"}}, os.Chmod(file, os.FileMode(t.Secret.Mode&0o777))
}

// mountPoint makes the mount point of a tree: a file if the tree is one.
func mountPoint(dir, name string, t wire.Tree) (string, error) {
	at := filepath.Join(dir, name)
	if t.Dir != "" {
		st, err := os.Stat(t.Dir)
		if err != nil {
			return "", err
		}
		if !st.IsDir() {
			return at, os.WriteFile(at, nil, 0o600)
		}
	}
	return at, os.Mkdir(at, 0o700)
}

// mountTree mounts a tree at a mount point.
func mountTree(dir string, b *Sandbox, t wire.Tree, at string, users *os.File) error {
	if len(t.Lowers) == 0 {
		attr := uint64(unix.MOUNT_ATTR_NODEV)
		if t.ReadOnly {
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		return mountns.Bind(t.Dir, at, attr, users)
	}
	return mountOverlay(dir, b, t, at, users)
}

// mountOverlay mounts an overlay over id-mapped directories; without an upper one it is read-only.
func mountOverlay(dir string, b *Sandbox, t wire.Tree, at string, users *os.File) error {
	lower, err := os.MkdirTemp(dir, "lower-")
	if err != nil {
		return err
	}
	options, err := enterLowers(lower, t.Lowers, users)
	if err != nil {
		return err
	}
	flags := uintptr(unix.MS_NODEV)
	if t.Upper == "" {
		flags |= unix.MS_RDONLY
	} else {
		both := commonDir([]string{t.Upper, t.Work})
		upper, err := os.MkdirTemp(dir, "upper-")
		if err == nil {
			err = mountns.Bind(both, upper, 0, users)
		}
		if err != nil {
			return fmt.Errorf("mapping the writable layer: %w", err)
		}
		beside := filepath.Join("..", filepath.Base(upper))
		options += fmt.Sprintf(",upperdir=%s%s,workdir=%s%s", beside, strings.TrimPrefix(t.Upper, both), beside,
			strings.TrimPrefix(t.Work, both))
	}
	err = mountns.AsUser(b.FirstID, func() error { return unix.Mount("overlay", at, "overlay", flags, options) })
	if err != nil {
		return fmt.Errorf("mounting the overlay: %w", err)
	}
	return nil
}

// selected mounts the part of a mounted tree that a path names. Another step may change a cache at the same time, so
// the kernel resolves the path inside the tree, and what it finds is mounted by its descriptor.
func selected(dir, name, tree, selector string) (string, error) {
	found, err := resolve(tree, selector)
	if err != nil {
		return "", fmt.Errorf("%.200q in it: %w", selector, err)
	}
	defer unix.Close(found)
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return "", err
	}
	at := filepath.Join(dir, "part-"+name)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(at, 0o700)
	} else {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		return "", err
	}
	part, err := unix.OpenTree(found, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(part)
	return at, mountns.Attach(part, at)
}

// resolve opens a path inside root as a process with that root would. The caller closes the descriptor.
func resolve(root, path string) (int, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}
