package guest

import (
	"encoding/binary"
	"time"
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

// patience bounds how long an answer is waited for.
func (w *waiter) patience(d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return unix.SetsockoptTimeval(w.conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
}

// send has it do something, with descriptors that come along.
func (w *waiter) send(message []byte, fds ...int) error {
	return unix.Sendmsg(w.conn, message, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// listen waits for the beginning of an answer that is there in less time than Go's scheduler takes to find that somebody waits: so it is not told, for as
// long as that.
func (w *waiter) listen() {
	p := [1]unix.PollFd{{Fd: int32(w.conn), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(time.Millisecond))
	_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

// number receives one number. It is errFrame if nobody is at the other end any more.
func (w *waiter) number() (int64, error) {
	var b [8]byte
	n, err := ignoringEINTR(w.conn, b[:])
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

// do has a zygote do what a message says, and say that it has.
func (w *waiter) do(m *message) error {
	m.say(m.putNumbers(1), 8)
	if err := w.send(m.bytes()); err != nil {
		return err
	}
	return w.done()
}

// begin has a spare become a command.
func (w *waiter) begin(message []byte, files []int) error {
	if err := w.send(message, files...); err != nil {
		return err
	}
	w.listen()
	err := w.done()
	if err == unix.EAGAIN {
		// A command begins only once its spare has said so. From here on it cannot.
		_ = unix.Shutdown(w.conn, unix.SHUT_RDWR)
		err = w.done()
	}
	return err
}
