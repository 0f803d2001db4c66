package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

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
// every image. Only the writable layer of an overlay cannot be mapped, since the kernel makes some of its files as the
// host's root. It is given to the sandbox's users before the step, and back after it.
func mountTrees(dir string, b *Sandbox) error {
	users, err := usersOf(b)
	if err != nil {
		return err
	}
	defer users.Close()
	b.Stubs = &Stubs{first: int(b.FirstID), times: map[string]unix.Timespec{}}
	for _, t := range b.Trees {
		if t.Upper != "" {
			b.Stubs.uppers = append(b.Stubs.uppers, t.Upper)
			if err := shift(t.Upper, 0, int(b.FirstID)); err != nil {
				return fmt.Errorf("giving a writable layer to the step: %w", err)
			}
		}
	}
	root := filepath.Join(dir, bundleRoot)
	first := b.Trees[0]
	if first.Upper == "" && len(first.Lowers) > 0 { // what it writes is dropped
		err = mountOverlay(dir, first.Lowers, b.Upper, b.Work, root, users)
	} else {
		err = mountTree(dir, first, root, users)
	}
	if err != nil {
		return fmt.Errorf("mounting the root of a step: %w", err)
	}
	mounts := []specs.Mount{
		{Type: "bind", Source: b.Run, Destination: layer.InsideRun,
			Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}},
		{Type: "bind", Source: b.Guest, Destination: layer.InsideGuest,
			Options: []string{"bind", "ro", "nosuid", "nodev"}},
	}
	for i, t := range b.Trees[1:] {
		m, err := attachment(dir, strconv.Itoa(i), t, users)
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
func attachment(dir, name string, t wire.Tree, users *os.File) (m specs.Mount, err error) {
	if t.Memory > 0 {
		return specs.Mount{Type: "tmpfs", Source: "tmpfs", Destination: t.Target, Options: []string{"nosuid", "nodev",
			"mode=1777", fmt.Sprintf("size=%d", t.Memory)}}, nil
	}
	at, err := mountPoint(dir, "tree-"+name, t)
	if err != nil {
		return m, err
	}
	if err := mountTree(dir, t, at, users); err != nil {
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
func mountTree(dir string, t wire.Tree, at string, users *os.File) error {
	if len(t.Lowers) == 0 {
		attr := uint64(unix.MOUNT_ATTR_NODEV)
		if t.ReadOnly {
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		return mountns.Bind(t.Dir, at, attr, users)
	}
	if t.Upper == "" {
		return mountOverlay(dir, t.Lowers, "", "", at, users)
	}
	return mountOverlay(dir, t.Lowers, t.Upper, t.Work, at, users)
}

// mountOverlay mounts an overlay over id-mapped lower directories; without an upper one it is read-only. Its paths are
// short, like mountRoot's.
func mountOverlay(dir string, lowers []string, upper, work, at string, users *os.File) error {
	lower, err := os.MkdirTemp(dir, "lower-")
	if err != nil {
		return err
	}
	options, err := enterLowers(lower, lowers, users)
	if err != nil {
		return err
	}
	flags := uintptr(unix.MS_NODEV)
	if upper == "" {
		flags |= unix.MS_RDONLY
	} else {
		options += fmt.Sprintf(",upperdir=%s,workdir=%s", upper, work)
	}
	if err := unix.Mount("overlay", at, "overlay", flags, options); err != nil {
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
