package launch

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/runtime/mountns"
)

const ptraceGetFilter = 0x420c // PTRACE_SECCOMP_GET_FILTER

// FilterOf returns the system call filter of a process, as the kernel runs it. The process must be one that runc has
// set up and that waits. FilterOf stops the process, and calls verify once the process number can no longer be
// reused. It needs root, a kernel with CONFIG_CHECKPOINT_RESTORE and a daemon that has no filter itself.
func FilterOf(pid int, verify func() error) (filter []unix.SockFilter, err error) {
	done := make(chan struct{})
	go mountns.OffMain(func() { // ptrace belongs to one thread
		defer close(done)
		filter, err = traceFilter(pid, verify)
	})
	<-done
	if err != nil {
		return nil, fmt.Errorf("reading the filter of process %d: %w", pid, err)
	}
	return filter, nil
}

func traceFilter(pid int, verify func() error) (filter []unix.SockFilter, err error) {
	if err := unix.PtraceSeize(pid); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.PtraceDetach(pid)) }()
	if err := unix.PtraceInterrupt(pid); err != nil {
		return nil, err
	}
	if err := awaitStop(pid); err != nil {
		return nil, err
	}
	if err := verify(); err != nil {
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
	if _, _, errno = unix.Syscall6(unix.SYS_PTRACE, ptraceGetFilter, uintptr(pid), 0,
		uintptr(unsafe.Pointer(unsafe.SliceData(filter))), 0, 0); errno != 0 {
		return nil, errno
	}
	return filter, nil
}

// stopTime is the time limit for a waiting process to stop.
const stopTime = time.Second

// awaitStop waits until a process that this thread traces has stopped. It polls, because the kernel has no wait for
// this with a time limit.
func awaitStop(pid int) error {
	for end := time.Now().Add(stopTime); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		var status unix.WaitStatus
		n, err := unix.Wait4(pid, &status, unix.WALL|unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR || err == nil && n == 0:
		case err != nil:
			return err
		case status.Stopped():
			return nil
		default:
			return unix.ESRCH
		}
	}
	return fmt.Errorf("it did not stop: %w", unix.ETIMEDOUT)
}
