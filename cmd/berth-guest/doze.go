package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/pid1"
	"berth/guest/wire"
	"berth/proto"
)

// A Go program that does nothing holds 800 KiB, its threads and page tables not counted, and a container that nobody
// uses has no other process. So such a guest executes itself anew under another name, for which the program's entry
// (entry_amd64.s, named to the linker by -E) waits for a connection or a request without starting the Go runtime, and
// then executes the guest again. See docs/decisions/0012.

// The descriptors that it waits for, which the guest has when it wakes. The entry has these numbers too.
const (
	listenerFD = 100
	connFD     = 101
)

// wokenFlag is the flag that tells a guest that wakes what it was.
const wokenFlag = "woken"

// doze executes the waiting program. It returns if that failed.
func doze(env []string) pid1.Dozer {
	return func(past pid1.State, listener, conn syscall.Conn) error {
		path, err := os.Executable()
		if err != nil {
			return err
		}
		const told = "-" + wokenFlag + "="
		args := []string{wire.DozeName, path, fmt.Sprintf("%s%s,%d", told, past.Boot, past.StartedAt.UnixMicro())}
		for _, arg := range os.Args[1:] {
			if !strings.HasPrefix(arg, told) {
				args = append(args, arg)
			}
		}
		for fd, from := range map[int]syscall.Conn{listenerFD: listener, connFD: conn} {
			if err := inherit(from, fd); err != nil {
				return err
			}
			defer unix.Close(fd)
		}
		if err := pid1.RestoreSignals(); err != nil {
			return err
		}
		err = syscall.Exec(path, args, env)
		return errors.Join(err, pid1.IgnoreSignals())
	}
}

// inherit makes c descriptor fd of the program that is executed next.
func inherit(c syscall.Conn, fd int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	got, failed := -1, error(nil)
	if err := raw.Control(func(own uintptr) { got, failed = unix.FcntlInt(own, unix.F_DUPFD, fd) }); err != nil ||
		failed != nil {
		return errors.Join(err, failed)
	}
	if got != fd {
		_ = unix.Close(got)
		return fmt.Errorf("descriptor %d is taken", fd)
	}
	return nil
}

// hungUp reports whether nobody is at the other side of a connection. What was sent over it has nobody who waits for
// it either, perhaps since long ago.
func hungUp(fd int32) bool {
	p := []unix.PollFd{{Fd: fd}}
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents&unix.POLLHUP != 0
}

// awake is what there is of a guest that dozed; conn is nil where that is over.
func awake(told string) (ln net.Listener, conn net.Conn, past pid1.State, err error) {
	boot, started, _ := strings.Cut(told, ",")
	micros, err := strconv.ParseInt(started, 10, 64)
	if err != nil {
		return nil, nil, past, fmt.Errorf("-%s: %w", wokenFlag, err)
	}
	past = pid1.State{Boot: boot, StartedAt: proto.At(time.UnixMicro(micros))}
	files := [...]*os.File{os.NewFile(listenerFD, "listener"), os.NewFile(connFD, "connection")}
	ln, err = net.FileListener(files[0])
	if err == nil && !hungUp(connFD) {
		conn, err = net.FileConn(files[1])
	}
	for _, f := range files {
		_ = f.Close() // what is in use are copies
	}
	return ln, conn, past, err
}
