// Package quick reads from and writes to sockets what is short without telling Go's scheduler. A system call that it
// is told of has it wake its monitor thread, if that sleeps, for a call that never waits: two switches of threads in
// a process that has nothing else to do but answer, and some 20 microseconds where a processor has to be woken for
// them. See docs/decisions/0048.
package quick

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Most is the most that is read or written at once in this way, in bytes. More may take the kernel so long that
// others should have the processor.
const Most = 4 << 10

// A Socket waits as any connection of package net does, and obeys the same deadlines. One goroutine may read and
// another write.
type Socket struct {
	raw     syscall.RawConn
	in, out transfer
}

// A transfer is one read or write: what the kernel is told, and what it says.
type transfer struct {
	message unix.Msghdr
	piece   unix.Iovec
	n       int
	err     error
	try     func(fd uintptr) bool // says whether it is over, or to be tried again once the socket is ready
}

// New is the socket of a connection.
func New(c syscall.Conn) (*Socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Socket{raw: raw}
	s.in.try = func(fd uintptr) bool { return s.in.do(unix.SYS_RECVMSG, fd, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC) }
	s.out.try = func(fd uintptr) bool { return s.out.do(unix.SYS_SENDMSG, fd, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }
	return s, nil
}

// do makes the call, and says whether it need not be made again.
func (t *transfer) do(call, fd, flags uintptr) bool {
	for {
		n, _, errno := unix.RawSyscall(call, fd, uintptr(unsafe.Pointer(&t.message)), flags)
		switch errno {
		case 0:
			t.n, t.err = int(n), nil
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			t.n, t.err = 0, errno
			return true
		}
	}
}

// set says what to transfer.
func (t *transfer) set(p, control []byte) {
	t.message, t.piece = unix.Msghdr{}, unix.Iovec{Base: unsafe.SliceData(p)}
	t.piece.SetLen(len(p))
	t.message.Iov = &t.piece
	t.message.SetIovlen(1)
	if len(control) > 0 {
		t.message.Control = unsafe.SliceData(control)
		t.message.SetControllen(len(control))
	}
}

// Receive reads up to Most bytes into p, and into control the messages that came with them, of which it returns the
// length. At the end of what the other side sends n is 0, without an error.
func (s *Socket) Receive(p, control []byte) (n, controlled int, err error) {
	t := &s.in
	t.set(p[:min(len(p), Most)], control)
	defer t.set(nil, nil)
	if err = s.raw.Read(t.try); err == nil {
		err = t.err
	}
	if err != nil {
		return 0, 0, err // and what the last read brought is where it was
	}
	return t.n, int(t.message.Controllen), nil
}

// Send writes all of p, and the control message with its first byte. n is how much was written before an error.
func (s *Socket) Send(p, control []byte) (n int, err error) {
	t := &s.out
	defer t.set(nil, nil)
	for n < len(p) {
		t.set(p[n:min(len(p), n+Most)], control)
		if err = s.raw.Write(t.try); err == nil {
			err = t.err
		}
		if err != nil {
			return n, err
		}
		n, control = n+t.n, nil
	}
	return n, nil
}

// Silent reports whether the other side is there and has nothing to say.
func (s *Socket) Silent() (silent bool) {
	err := s.raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), uintptr(len(b)),
			unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		silent = errno == unix.EAGAIN
	})
	return err == nil && silent
}
