package pid1

import (
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"berth/guest/proc"
	"berth/guest/wire"
	"berth/proto"
)

// endOfFile is the character that ends input on a terminal in its usual mode (^D).
const endOfFile = 4

// plumbTTY creates a terminal as the child's stdin, stdout and stderr.
func (e *execution) plumbTTY(cmd *wire.Command, p *plan) (childIO, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return childIO{}, err
	}
	defer slave.Close()
	fd, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = master.Close()
		return childIO{}, err
	}
	pl := childIO{Files: proc.Files{FDs: []int{fd, fd, fd}, TTY: true}, child: []int{fd}}
	_ = unix.SetNonblock(fd, false) // package os set it to non-blocking, which programs do not expect
	if !p.User.Self {
		_ = unix.Fchown(fd, p.User.UID, -1) // programs can then open it by name
	}
	_ = pty.Setsize(master, &pty.Winsize{Rows: cmd.TTY.Rows, Cols: cmd.TTY.Cols})
	e.tty, e.outs = master, []*os.File{master}
	if cmd.HasInput() {
		// A separate descriptor, so that closing the input does not close the output.
		in, err := duplicate(master)
		if err != nil {
			return pl, err
		}
		e.startFeed(cmd)
		e.feed.Open(in, func() error { _, err := in.Write([]byte{endOfFile}); return err })
	}
	return pl, nil
}

// duplicate duplicates a descriptor and registers it with Go's poller.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	return wire.Pollable(fd, f.Name())
}

// resize sets the size of the terminal. The kernel then signals its programs.
func (e *execution) resize(rows, cols uint32) error {
	if e.tty == nil {
		return proto.Errorf(proto.InvalidArgument, "resize", "", "the command has no terminal")
	}
	if rows > 0xffff || cols > 0xffff {
		return proto.Errorf(proto.InvalidArgument, "resize", "", "a terminal has at most 65535 rows and columns")
	}
	return wire.FileError("resize", "the terminal",
		pty.Setsize(e.tty, &pty.Winsize{Rows: uint16(rows), Cols: uint16(cols)}))
}

// foreground returns the foreground process group of the terminal, or 0 without a terminal.
func (e *execution) foreground() (group int) {
	if e.tty == nil {
		return 0
	}
	raw, err := e.tty.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { group, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
	return group
}
