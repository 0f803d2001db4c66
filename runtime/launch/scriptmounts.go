package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtime/mountns"
)

// What is in the root of both mount namespaces that scripts use: three directories, and a file.
const (
	BesideRoot = "/root" // the sandbox's root file system, until it covers all this; in the store, directories
	BesideProc = "/proc"
	BesideSys  = "/sys"
	BesideNet  = "/net"
)

// Directories of the store. Nobody can write to them.
const (
	storeEmpty  = BesideRoot + "/empty"  // as it says
	storeGroups = BesideRoot + "/cgroup" // what /sys/fs/cgroup is where there is v1: the places of hierarchies
)

// scriptMounts are two mount namespaces that the scripts of a daemon use.
type scriptMounts struct {
	// empty has nothing but a root that cannot be written to. Each sandbox has a copy of it, and covers that root by
	// its own.
	empty *os.File
	// store has what sandboxes get copies of: a sysfs, at besideSys; the network that the sysfs shows, at besideNet,
	// which has a loopback interface and nothing else, as that of each sandbox; the daemon's proc, at besideProc, for
	// as long as they mount their own; and directories. The kernel keeps lists for each file system, and walks all of
	// them for each cgroup that goes, so what is the same for all sandboxes is there once. See docs/decisions/0010.
	store *os.File
}

// openScriptMounts makes them. They end with the files, and with the last sandbox that has copies. The directory dir
// exists; nothing of it is changed.
func openScriptMounts(dir string) (m scriptMounts, err error) {
	m.empty, err = newMounts(dir, func(leave func() error) error { return leave() })
	if err == nil {
		points, _ := hierarchies() // in the store there are none to be seen
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

// newMounts makes a mount namespace as fill does on a thread of its own, from which the host is gone after leave.
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

// ofThread is where a namespace of this thread is.
func ofThread(kind string) string {
	return fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), kind)
}

// fillStore makes what the store has. The host has v1's hierarchies at points.
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

// makeDirs makes directories, each after the one that it is in.
func makeDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// raiseLoopback makes the loopback interface of this thread's network usable.
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

// inert are the flags of file systems that have nothing to be used but names.
const inert = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mountNames mounts a file system at dir that has what fill makes there, and that nobody writes to afterwards.
func mountNames(dir string, fill func() error) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", inert, "mode=755"); err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|inert, "")
}

// leaveAllMounts has this thread's mount namespace, which nobody else has, lose all that is in it.
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
