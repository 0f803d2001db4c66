package proc

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's reasons for a SIGCHLD, in si_code.
const (
	codeExited = 1 // CLD_EXITED
	codeKilled = 2 // CLD_KILLED
	codeDumped = 3 // CLD_DUMPED
)

// A childState is what waitid reports of a child: the head of the kernel's siginfo_t.
type childState struct {
	_    int32 // si_signo
	_    int32 // si_errno
	code int32
	_    int32
	pid  int32
}

// ended reports whether the child has ended. Otherwise a trace has stopped it.
func (c *childState) ended() bool {
	return c.code == codeExited || c.code == codeKilled || c.code == codeDumped
}

// waitable returns a child whose state has changed, with pid 0 if there is none, and leaves the change to be waited
// for. The kernel does not reuse the PID of a zombie.
//
// Which states waitid reports is not up to its flags alone: a stop of a process that the guest traces is always among
// them. Any process can make the guest its tracer with PTRACE_TRACEME.
func waitable(idType, id int) (childState, error) {
	var info unix.Siginfo
	err := unix.Waitid(idType, id, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG|unix.WALL, nil)
	return stateIn(&info), err
}

// stateIn returns the head of info, which package unix does not name.
func stateIn(info *unix.Siginfo) childState { return *(*childState)(unsafe.Pointer(info)) }

// releaseStopped releases a child if a trace has stopped it.
func (r *reaper) releaseStopped(pid int) {
	r.mu.Lock() // pid is not reaped meanwhile, so it remains that of the process
	defer r.mu.Unlock()
	// Takes the stop and no other change of state: the process may have been killed since.
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WALL, nil)
	if err == nil && stateIn(&info).pid != 0 {
		r.release(pid)
	}
}

// release ends the trace of a process that has stopped for the guest. The process goes on as if it had never been
// traced: the signal that has stopped it is delivered.
func (r *reaper) release(pid int) {
	r.home.run(func() {
		if detach(pid, stoppedBy(pid)) != nil { // mostly because it is dead
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
}

// detach ends the trace of a stopped process and delivers sig to it. Called on the home thread.
func detach(pid int, sig unix.Signal) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(sig), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// stoppedBy returns the signal that has stopped a traced process and is still to be delivered, or 0. Called on the
// home thread.
func stoppedBy(pid int) unix.Signal {
	var info struct { // the head of siginfo_t as of a signal that a process has sent
		signo, errno, code, _ int32
		sender                int32
		_                     [27]int32
	}
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(pid), 0,
		uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return 0 // its whole process has stopped already
	}
	const fromProcess = 0 // SI_USER
	switch sig := unix.Signal(info.signo); {
	case info.code != fromProcess:
		return sig
	case sig == unix.SIGTRAP && int(info.sender) == pid: // tells a tracer that the process has executed a program
		return 0
	case sig == unix.SIGSTOP && info.sender == 0: // tells a tracer of a new process
		return 0
	default:
		return sig
	}
}
