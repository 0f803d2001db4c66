package guest

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A bell rings when a child has died. A thread that waits for that in the kernel has the guest's only processor there
// with it, until the scheduler's monitor thread takes it away, which was three times in each command. So the kernel
// signals a death, a handler of a few instructions (bell_amd64.s) adds to an event counter, and the poller sees that
// as it sees all else that the guest waits for. See docs/decisions/0041.
type bell struct{ f *os.File }

// What the handler uses, on any thread and at any time. So they are the process's, as its signals are, and stay.
var (
	bellFD    int32
	bellCount uint64 = 1
)

// bellText is where the handler is, and what it returns to.
func bellText() (handler, restorer uintptr)

// bellFlags are of rt_sigaction: on the stack that Go's threads have for signals (SA_ONSTACK), what was interrupted
// goes on (SA_RESTART), and there is something to return to (SA_RESTORER).
const bellFlags = 0x08000000 | 0x10000000 | 0x04000000

// theBell hangs the process's bell, at the first call.
var theBell = sync.OnceValues(func() (bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return bell{}, fmt.Errorf("making an event counter: %w", err)
	}
	bellFD = int32(fd)
	act := kernelAction{flags: bellFlags}
	act.handler, act.restorer = bellText()
	if no := act.set(int(unix.SIGCHLD)); no != 0 {
		_ = unix.Close(fd)
		return bell{}, fmt.Errorf("handling deaths of children: %w", no)
	}
	return bell{os.NewFile(uintptr(bellFD), "bell")}, nil
})

// each calls fn at once, and whenever the bell has rung since it was called, until it reports that this is enough.
func (b bell) each(fn func() (enough bool)) error {
	raw, err := b.f.SyscallConn()
	if err != nil {
		return err
	}
	// the poller tells of each ring, also where the count was not read
	return raw.Read(func(uintptr) bool { return fn() })
}

// ring has each call its function.
func (b bell) ring() {
	_, _ = b.f.Write(unsafe.Slice((*byte)(unsafe.Pointer(&bellCount)), unsafe.Sizeof(bellCount)))
}

// set has the process do so with a signal.
func (a *kernelAction) set(sig int) syscall.Errno {
	_, _, no := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(a)), 0,
		unsafe.Sizeof(a.mask), 0, 0)
	return no
}
