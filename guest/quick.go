package guest

import (
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mostQuick is the most that is read or written at once without telling Go's scheduler, in bytes. More may take the kernel so long that others should have the processor.
const mostQuick = 4 << 10

// A quick socket is read from and written to without telling Go's scheduler, which would wake its monitor thread for calls that never wait: two switches of
// threads, in a guest that has nothing else to do but answer. It waits as any connection of package net does, and obeys the same deadlines. One goroutine reads, and writers take turns (conn.write). See docs/decisions/0048.
type quick struct {
	raw     syscall.RawConn
	in, out transfer
	control [rightsBytes]byte // of what was read last
}

// A transfer is one read or write: what the kernel is told, and what it says.
type transfer struct {
	message unix.Msghdr
	piece   unix.Iovec
	n       int
	err     error
	try     func(fd uintptr) bool // says whether it is over, or to be tried again once the socket is ready
}

// newQuick makes a connection quick. It is nil where that cannot be.
func newQuick(c net.Conn) *quick {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil
	}
	q := &quick{raw: raw}
	q.in.try = func(fd uintptr) bool { return q.in.do(unix.SYS_RECVMSG, fd, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC) }
	q.out.try = func(fd uintptr) bool { return q.out.do(unix.SYS_SENDMSG, fd, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }
	return q
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

// read reads into p, of at most mostQuick bytes. Control messages, which are valid until the next read, bring descriptors.
func (q *quick) read(p []byte) (n int, control []byte, err error) {
	t := &q.in
	t.set(p, q.control[:])
	defer t.set(nil, nil)
	if err = q.raw.Read(t.try); err == nil {
		err = t.err
	}
	if err != nil {
		return 0, nil, err // and what the last read brought is where it was
	}
	return t.n, q.control[:t.message.Controllen], nil
}

// write writes all of p.
func (q *quick) write(p []byte) error {
	t := &q.out
	defer t.set(nil, nil)
	for len(p) > 0 {
		t.set(p, nil)
		if err := q.raw.Write(t.try); err != nil {
			return err
		}
		if t.err != nil {
			return t.err
		}
		p = p[t.n:]
	}
	return nil
}
