package guest

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// slack is how late the kernel may end a sleep of the guest's. Go's monitor thread asks to be woken after 20 µs for
// as long as there is something to do, also if that only waits for a processor: with the kernel's own 50 µs it was a
// seventh of what the guest cost, and wakes that others paid for. What it does is to find threads that the kernel
// holds up, which on a guest's way are those that wait for a disk. See docs/decisions/0041.
const slack = 20 * time.Millisecond

// childSlack is the slack that what the guest starts has, in nanoseconds: what it found itself, but no more than
// ordinarySlack, since a daemon may have made it on a thread that has more. It is 0 while that is the guest's own.
var childSlack int

const ordinarySlack = 50_000 // the kernel's own

// Unhurry gives all threads of the process that slack, of which the monitor keeps it. A kernel that has no such
// thing, as gVisor's, is left as it is.
func Unhurry() error {
	found, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || found <= 0 || time.Duration(found) >= slack {
		return nil
	}
	if _, _, no := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0,
		0); no != 0 {
		return no
	}
	childSlack = min(found, ordinarySlack)
	return nil
}

// Hurried runs fn, which starts a process or executes a program in the place of this one, on a thread that has
// childSlack: a process has that of the thread that makes it, or that it was. The thread keeps it: it is not the
// monitor, which runs nothing.
func Hurried(fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	hurry()
	fn()
}

// hurry gives the calling thread childSlack.
func hurry() {
	if childSlack != 0 {
		_ = rawCall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(childSlack), 0) // it was taken once
	}
}

// nap is time.Sleep for less than the slack. The thread that sleeps for a goroutine is nearly always its own: there
// is one processor, and who was the last to have something to do waits for all.
func nap(d time.Duration) {
	hurry()
	time.Sleep(d)
}
