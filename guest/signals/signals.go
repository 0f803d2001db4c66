// Package signals protects the guest from signals that would end it, and keeps its commands free of that protection.
// The program berth-guest calls Ignore at its start, and Restore before it executes another program in its place.
package signals

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A kernelAction is the struct sigaction of rt_sigaction. All zero is the default action.
type kernelAction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// The handlers of rt_sigaction that need no code.
const (
	handleDefault = 0
	handleIgnore  = 1
)

// Ignore makes the process ignore every signal that could end it. It may execute the program again, so it must
// be called first.
//
// It uses os/signal only under gVisor, since that occupies three threads that wait without use. Signals that are
// ignored here are not ignored in a child. The Go runtime installed handlers for these signals at its start, and
// resets every signal with a handler in a child. It does not know that Ignore has replaced the handlers. The
// runtime installs no handler for a signal that is ignored at its start, and a child would inherit such a signal as
// ignored. In that case Ignore restores the default action and executes the program again.
func Ignore() error {
	found, err := defaultSignals()
	if err == errSignalsHidden {
		catchSignals()
		return nil
	}
	if err != nil {
		return err
	}
	if found {
		return unix.Exec(itself, os.Args, os.Environ())
	}
	keepName()
	for n := range mortal {
		switch n {
		// the kernel does not stop a process that has no parent to continue it
		case unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		case unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS:
			signal.Ignore(n) // when another process sends it; faults of the guest itself keep their effect
		default:
			setAction(int(n), handleIgnore)
		}
	}
	return nil
}

// Restore undoes Ignore before the process executes another program. That program would inherit the
// ignored signals, and a guest that it executes later would have to start twice.
func Restore() error {
	_, err := defaultSignals()
	if err == errSignalsHidden {
		err = nil
	}
	return err
}

// mortal yields the signals that could end or stop a process and can be ignored. It leaves out SIGKILL and SIGSTOP,
// which cannot be ignored, SIGURG of the Go runtime, and SIGCHLD, which ends no process.
func mortal(yield func(syscall.Signal) bool) {
	for n := syscall.Signal(1); n < 32; n++ {
		switch n {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGURG, unix.SIGCHLD:
		default:
			if !yield(n) {
				return
			}
		}
	}
}

// itself is the path of the running program.
const itself = "/proc/self/exe"

// keepName sets the process name to the name of the program. The kernel names a process that executes itself "exe".
func keepName() {
	const file = "/proc/self/comm"
	if name, err := os.ReadFile(file); err == nil && string(name) == filepath.Base(itself)+"\n" {
		_ = os.WriteFile(file, []byte(filepath.Base(os.Args[0])), 0) // for process lists
	}
}

// catchSignals catches the signals that Ignore ignores on other kernels. gVisor does not protect PID 1 from
// any signal. Catching is the only way to block stop signals that a child does not inherit.
func catchSignals() {
	dropped := make(chan os.Signal, 1)
	for n := range mortal {
		signal.Notify(dropped, n)
	}
	go func() {
		for range dropped {
		}
	}()
}

// errSignalsHidden says that the kernel does not report ignored signals. gVisor does not.
var errSignalsHidden = errors.New("the kernel does not tell which signals are ignored")

// defaultSignals restores the default action of all signals that were ignored at the guest's start, since commands
// would inherit that. It reports whether there were any. It includes the two signals that C libraries reserve for
// themselves.
func defaultSignals() (found bool, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	_, rest, ok := strings.Cut(string(status), "\nSigIgn:\t")
	if !ok {
		return false, errSignalsHidden
	}
	mask, _, _ := strings.Cut(rest, "\n")
	ignored, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		return false, err
	}
	for sig := range 64 {
		if ignored&(1<<sig) != 0 && setAction(sig+1, handleDefault) {
			found = true
		}
	}
	return found, nil
}

// setAction sets the kernel's action for a signal. It fails for signals that allow only the default action, which
// does no harm.
func setAction(sig int, handler uintptr) bool {
	act := kernelAction{handler: handler}
	_, _, no := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0,
		unsafe.Sizeof(act.mask), 0, 0)
	return no == 0
}
