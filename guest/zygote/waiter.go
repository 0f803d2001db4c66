package zygote

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/guest/proc"
	"berth/guest/wire"
)

// A waiter is a program that waits for messages: a zygote, or a prestarted process, which a zygote has forked and
// which waits for a command.
type waiter struct {
	o    *proc.Group
	conn int           // the guest's end of its socket
	wait time.Duration // timeout of an answer
	died <-chan proc.ExitStatus
	gone chan struct{} // closed when it has ended and was cleaned up
}

// newWaiter creates a waiter and its socket. far is the waiter's end.
func newWaiter() (w *waiter, far int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	tv := unix.NsecToTimeval(int64(soon))
	if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		wire.CloseAll(pair[:])
		return nil, -1, err
	}
	return &waiter{o: &proc.Group{}, conn: pair[0], wait: answerTimeout, gone: make(chan struct{})}, pair[1], nil
}

// soon is how long receive blocks in a raw read that Go's scheduler does not know of. Nearly always the answer
// arrives sooner than the scheduler would notice a blocked thread.
const soon = time.Millisecond

// send sends a message to the waiter, with descriptors.
func (w *waiter) send(message []byte, fds ...int) error {
	return unix.Sendmsg(w.conn, message, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// receive waits for an answer. It returns EAGAIN if none comes.
func (w *waiter) receive(b []byte) (int, error) {
	n, _, no := unix.RawSyscall(unix.SYS_READ, uintptr(w.conn), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if no == 0 {
		return int(n), nil
	}
	if no != unix.EAGAIN && no != unix.EINTR {
		return 0, no
	}
	p := []unix.PollFd{{Fd: int32(w.conn), Events: unix.POLLIN}}
	for end := time.Now().Add(w.wait); ; {
		_, err := unix.Poll(p, max(0, int(time.Until(end).Milliseconds())))
		if err != unix.EINTR {
			return wire.ReadRetry(w.conn, b)
		}
	}
}

// number receives one number. It returns ErrFrame if the other end is closed.
func (w *waiter) number() (int64, error) {
	var b [8]byte
	n, err := w.receive(b[:])
	if err == nil && n != len(b) {
		err = wire.ErrFrame
	}
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

// done receives the confirmation that a message was carried out, or the error of the call that failed.
func (w *waiter) done() error {
	n, err := w.number()
	if err == nil && n != 1 {
		err = unix.Errno(-n)
	}
	return err
}

// do has a zygote carry out a message and confirm it.
func (w *waiter) do(m *message) error {
	m.say(m.putNumbers(1), 8)
	if err := w.send(m.bytes()); err != nil {
		return err
	}
	return w.done()
}

// become makes a prestarted process become a command.
func (w *waiter) become(message []byte, files []int) error {
	if err := w.send(message, files...); err != nil {
		return err
	}
	err := w.done()
	if err == unix.EAGAIN {
		// A command begins only after its prestarted process has confirmed. After the shutdown it cannot confirm.
		_ = unix.Shutdown(w.conn, unix.SHUT_RDWR)
		err = w.done()
	}
	return err
}
