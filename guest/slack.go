package guest

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// slack is how late the kernel may end a sleep of the guest's. Go's monitor thread asks to be woken after 20 µs for as long as there is something to do,
// which with the kernel's own 50 µs is some 30 times in the time of a command that waits for a processor: a seventh of what the guest cost. It must not be
// late by much, since it has what waits go on when a thread is held up by the kernel, which the reaper's is whenever nobody dies. See docs/decisions/0041.
const slack = 200 * time.Microsecond

// childSlack is the slack that the guest found, in nanoseconds, and what it starts has; 0 while that is the guest's own.
var childSlack int

// Unhurry gives all threads of the process that slack. A kernel that has no such thing, as gVisor's, is left as it is.
func Unhurry() error {
	found, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || found <= 0 || time.Duration(found) >= slack {
		return nil
	}
	if _, _, no := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0, 0); no != 0 {
		return no
	}
	childSlack = found
	return nil
}

// Hurried runs fn, which starts a process or executes a program in the place of this one, on a thread that has the slack that the guest found: a process
// has that of the thread that makes it, or that it was.
func Hurried(fn func()) {
	if childSlack == 0 {
		fn()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(childSlack), 0, 0, 0) // it was taken once
	fn()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0)
}
