package containerd

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const ptraceGetFilter = 0x420c // PTRACE_SECCOMP_GET_FILTER

// filterOf is the filter of system calls that a process has, as the kernel runs it. The process must be one that runc has set up and that has
// nothing to do yet: it stops for it. It takes root, a kernel with CONFIG_CHECKPOINT_RESTORE and a daemon that is not filtered itself.
func filterOf(pid int) (filter []unix.SockFilter, err error) {
	done := make(chan struct{})
	go offMain(func() { // who traces is a thread
		defer close(done)
		filter, err = traceFilter(pid)
	})
	<-done
	if err != nil {
		return nil, fmt.Errorf("reading the filter of process %d: %w", pid, err)
	}
	return filter, nil
}

func traceFilter(pid int) (filter []unix.SockFilter, err error) {
	if err := unix.PtraceSeize(pid); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.PtraceDetach(pid)) }()
	if err := unix.PtraceInterrupt(pid); err != nil {
		return nil, err
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		return nil, err
	}
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, ptraceGetFilter, uintptr(pid), 0, 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	if _, _, errno = unix.Syscall6(unix.SYS_PTRACE, ptraceGetFilter, uintptr(pid), 1, 0, 0, 0); errno != unix.ENOENT {
		return nil, fmt.Errorf("there is not one filter: %w", errno)
	}
	filter = make([]unix.SockFilter, n)
	if _, _, errno = unix.Syscall6(unix.SYS_PTRACE, ptraceGetFilter, uintptr(pid), 0, uintptr(unsafe.Pointer(unsafe.SliceData(filter))), 0, 0); errno != 0 {
		return nil, errno
	}
	return filter, nil
}
