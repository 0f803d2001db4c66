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

	"berth/guest/gosched"
	"berth/guest/pid1"
	"berth/guest/signals"
	"berth/guest/wire"
	"berth/proto"
)

// An idle Go program holds 800 KiB, without its threads and page tables, and an idle container has no other process.
// So an idle guest executes itself again under another name. The program's entry (entry_amd64.s, given to the linker
// with -E) recognizes that name. It waits for a connection or a request without starting the Go runtime, and then
// executes the guest again. See docs/decisions/0012.

// The descriptors that the entry waits for. The guest has them when it wakes. The entry contains the same numbers.
const (
	listenerFD = 100
	connFD     = 101
)

// wokenFlag is the flag that passes a waking guest its earlier state.
const wokenFlag = "woken"

// doze executes the waiting program. It returns only if that fails.
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
		if err := signals.Restore(); err != nil {
			return err
		}
		gosched.WithCommandSlack(func() { err = syscall.Exec(path, args, env) })
		return errors.Join(err, signals.Ignore())
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

// hungUp reports whether the peer has closed a connection. No client waits for a reply to data that arrived on such a
// connection, and the data may be old.
func hungUp(fd int32) bool {
	p := []unix.PollFd{{Fd: fd}}
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents&unix.POLLHUP != 0
}

// awake restores what a dozing guest kept. conn is nil if that connection has ended.
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
		_ = f.Close() // the guest uses copies
	}
	return ln, conn, past, err
}
