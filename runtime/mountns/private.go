package mountns

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Private moves the process to a mount namespace of its own. The process executes itself again, and Private returns
// in the second run. Call it first in main of the daemon, before any goroutine or file exists. The PID stays.
//
// The daemon mounts much and often. In its own namespace, systemd and other daemons do not have to process each
// mount. Nothing is left behind when the last shim ends, and no sandbox keeps a mount of the host busy. The host's
// own mounts and unmounts still arrive in the namespace.
func Private() error {
	if second, err := takeMark(); second || err != nil {
		return err
	}
	// In the new namespace the link would name a path outside of a root that was changed by chroot.
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	// unshare changes only this thread; exec then makes it the only one.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leaving the host's mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := leaveMark(); err != nil {
		return err
	}
	return fmt.Errorf("starting again: %w", syscall.Exec(exe, os.Args, os.Environ()))
}

// The mark distinguishes the second run from the first: an open file with our name. Unlike an environment variable or
// an argument, it cannot reach any other process. Unlike a comparison with PID 1's namespace, it needs no rights over
// PID 1.
const mark = "berth-private-mounts"

func leaveMark() error {
	if _, err := unix.MemfdCreate(mark, 0); err != nil { // stays open across exec
		return fmt.Errorf("marking the second run: %w", err)
	}
	return nil
}

// takeMark reports whether this is the second run, and removes the mark.
func takeMark() (bool, error) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return false, fmt.Errorf("looking for the mark of a second run: %w", err)
	}
	for _, e := range fds {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || !strings.HasPrefix(link, "/memfd:"+mark) {
			continue
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			unix.Close(fd)
			return true, nil
		}
	}
	return false, nil
}
