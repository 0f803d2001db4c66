package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtime/mountns"
)

// Contents of the root of both mount namespaces that setup programs use: three directories and a file.
const (
	BesideRoot = "/root" // the sandbox's root file system, until it covers the root; in the store, directories
	BesideProc = "/proc"
	BesideSys  = "/sys"
	BesideNet  = "/net"
)

// Directories of the store. They are read-only.
const (
	storeEmpty  = BesideRoot + "/empty"  // an empty directory
	storeGroups = BesideRoot + "/cgroup" // with cgroup v1, the sandbox's /sys/fs/cgroup: mount points of hierarchies
)

// scriptMounts holds two mount namespaces that the setup programs of a daemon use.
type scriptMounts struct {
	// empty has only a read-only root. Each sandbox gets a copy and covers that root with its own.
	empty *os.File
	// store holds what sandboxes get copies of. A sysfs is at BesideSys. The network that the sysfs shows is at
	// BesideNet; it has only a loopback interface, like the network of each sandbox. The daemon's proc is at
	// BesideProc; sandboxes need it until they have mounted their own. The rest are directories. The kernel keeps
	// lists for each file system and walks all of them for each cgroup that is removed. So whatever is the same for
	// all sandboxes exists once. See docs/decisions/0010.
	store *os.File
}

// openScriptMounts makes both namespaces. They end with their files and with the last sandbox that has copies. The
// directory dir must exist; its contents on the host do not change.
func openScriptMounts(dir string) (m scriptMounts, err error) {
	m.empty, err = newMounts(dir, func(leave func() error) error { return leave() })
	if err == nil {
		points, _ := hierarchies() // they are not visible in the store
		m.store, err = newMounts(dir, func(leave func() error) error { return fillStore(leave, points) })
	}
	if err != nil {
		m.Close()
		return scriptMounts{}, fmt.Errorf("making mount namespaces for scripts: %w", err)
	}
	return m, nil
}

func (m scriptMounts) Close() {
	m.empty.Close()
	m.store.Close()
}

// newMounts makes a mount namespace and calls fill in it, on a thread of its own. After fill has called leave, the
// host's mounts are gone from the namespace.
func newMounts(dir string, fill func(leave func() error) error) (ns *os.File, err error) {
	err = mountns.InOwn(func() (err error) {
		if ns, err = os.Open(ofThread("mnt")); err != nil {
			return err
		}
		return fill(func() error { return leaveAllMounts(dir) })
	})
	if err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// ofThread returns the path of a namespace of this thread.
func ofThread(kind string) string {
	return fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), kind)
}

// fillStore makes the contents of the store. points are the mount points of the host's v1 hierarchies.
func fillStore(leave func() error, points []string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("raising the loopback interface: %w", err)
	}
	proc, err := mountns.Detach("/proc", 0, nil)
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	net, err := mountns.Detach(ofThread("net"), 0, nil)
	if err != nil {
		return err
	}
	defer unix.Close(net)
	if err := leave(); err != nil {
		return err
	}
	if err := mountns.Attach(proc, BesideProc); err != nil {
		return err
	}
	if err := mountns.Attach(net, BesideNet); err != nil {
		return err
	}
	if err := fillRoot(points); err != nil {
		return err
	}
	return unix.Mount("sysfs", BesideSys, "sysfs", inert|unix.MS_RDONLY, "")
}

// fillRoot makes the directories of the store.
func fillRoot(points []string) error {
	dirs := []string{storeEmpty, storeGroups}
	links := map[string]string{}
	for _, point := range points {
		name := filepath.Base(point)
		dirs = append(dirs, filepath.Join(storeGroups, name))
		for controller := range strings.SplitSeq(name, ",") {
			if controller != name {
				links[filepath.Join(storeGroups, controller)] = name
			}
		}
	}
	return mountNames(BesideRoot, func() error {
		if err := makeDirs(dirs...); err != nil {
			return err
		}
		for link, name := range links {
			if err := os.Symlink(name, link); err != nil {
				return err
			}
		}
		return nil
	})
}

// makeDirs makes directories. A parent must come before its children.
func makeDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// raiseLoopback brings up the loopback interface of this thread's network.
func raiseLoopback() error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, lo)
}

// inert holds the mount flags of file systems that are used for their names only.
const inert = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mountNames mounts a file system at dir, calls fill to make its contents, and makes the file system read-only.
func mountNames(dir string, fill func() error) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", inert, "mode=755"); err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|inert, "")
}

// leaveAllMounts removes all of the host's mounts from this thread's mount namespace, which no other thread may
// share.
func leaveAllMounts(dir string) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	err := mountNames(dir, func() error {
		if err := makeDirs(in(BesideRoot), in(BesideProc), in(BesideSys)); err != nil {
			return err
		}
		return os.WriteFile(in(BesideNet), nil, 0o444)
	})
	if err != nil {
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
