package pid1

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

// A kernelAction is struct sigaction as rt_sigaction takes it; all zero is the default action.
type kernelAction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// The handlers that rt_sigaction knows without code.
const (
	handleDefault = 0
	handleIgnore  = 1
)

// IgnoreSignals makes the process outlive every signal that could end it. It may start the program again, so it comes
// first.
//
// Nothing here is caught with os/signal, but under gVisor: that holds three threads for good, which wait in vain.
// What is ignored here is not ignored in a child: the Go runtime sets signals back in it that it has put a handler
// to, as it has at its start for each of these, and is not told that ours stands in its place. It puts none to those
// that it finds ignored, and a child would find them so; hence the new start.
func IgnoreSignals() error {
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
		// the kernel spares what has nobody to let it go on
		case unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		case unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS:
			signal.Ignore(n) // if somebody sends it; our own faults stay what they are
		default:
			setAction(int(n), handleIgnore)
		}
	}
	return nil
}

// RestoreSignals undoes Endure for a program that takes this one's place: what is ignored would be so there, and a
// guest that follows would begin twice.
func RestoreSignals() error {
	_, err := defaultSignals()
	if err == errSignalsHidden {
		err = nil
	}
	return err
}

// mortal are the signals that could end or stop a process and may be kept from it: all but two that nobody can, one
// of the runtime's own, and one that ends nothing.
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

// itself is the program that runs, wherever it is found.
const itself = "/proc/self/exe"

// keepName gives the process the name of its program again, where the kernel has named it after itself.
func keepName() {
	const file = "/proc/self/comm"
	if name, err := os.ReadFile(file); err == nil && string(name) == filepath.Base(itself)+"\n" {
		_ = os.WriteFile(file, []byte(filepath.Base(os.Args[0])), 0) // for those who look at lists of processes
	}
}

// catchSignals catches what Endure ignores elsewhere. gVisor spares PID 1 nothing, and what would stop a process can
// be kept from it in no other way that a child does not inherit.
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

// errSignalsHidden says that the kernel does not tell what is ignored, as gVisor does not.
var errSignalsHidden = errors.New("the kernel does not tell which signals are ignored")

// defaultSignals undoes what the guest was started with ignored, since commands would inherit that
// through it, and reports whether there was anything. The two that C libraries keep for themselves are among them.
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

// setAction has the kernel deal with a signal by itself. It fails for those that have no other action than the
// default, which is as well.
func setAction(sig int, handler uintptr) bool {
	act := kernelAction{handler: handler}
	_, _, no := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0,
		unsafe.Sizeof(act.mask), 0, 0)
	return no == 0
}
