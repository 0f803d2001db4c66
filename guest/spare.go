package guest

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A waiter is a bash that waits for messages: a zygote, or a spare, which is its child and waits for a command.
type waiter struct {
	o    *owner
	conn int // our end of its socket
	died <-chan death
	gone chan struct{} // closed when it has ended and nothing is left of it
}

// newWaiter makes the socket for one. far is its end.
func newWaiter() (w *waiter, far int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	return &waiter{o: &owner{zygote: true}, conn: pair[0], gone: make(chan struct{})}, pair[1], nil
}

// patience bounds how long receive waits, in nanoseconds.
func (w *waiter) patience(d int64) error {
	tv := unix.NsecToTimeval(d)
	return unix.SetsockoptTimeval(w.conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
}

// send has it do something, with descriptors that come along.
func (w *waiter) send(m *message, fds ...int) error {
	b := m.bytes()
	if b == nil {
		return unix.E2BIG
	}
	return unix.Sendmsg(w.conn, b, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// receive waits for what it says. The answer is there in less time than Go's scheduler needs to find that somebody waits, so it is not told.
func (w *waiter) receive(b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(w.conn), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// number receives one number. It is errFrame if nobody is at the other end any more.
func (w *waiter) number() (int64, error) {
	var b [8]byte
	n, err := w.receive(b[:])
	if err == nil && n != len(b) {
		err = errFrame
	}
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

// done receives that all was done that a message said, or what kept it from that.
func (w *waiter) done() error {
	n, err := w.number()
	if err == nil && n != 1 {
		err = unix.Errno(-n)
	}
	return err
}

// begin has a spare become a command.
func (w *waiter) begin(m *message, files []int) error {
	if err := w.send(m, files...); err != nil {
		return err
	}
	err := w.done()
	if err == unix.EAGAIN {
		// A command begins only once its spare has said so. From here on it cannot.
		_ = unix.Shutdown(w.conn, unix.SHUT_RDWR)
		err = w.done()
	}
	return err
}
