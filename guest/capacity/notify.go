package capacity

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A notification is struct seccomp_notif: a call that a thread waits in.
type notification struct {
	id    uint64
	tid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// An answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// Requests of seccomp's notification descriptor.
const (
	notifReceive = 0xc0502100
	notifSend    = 0xc0182101
	notifValid   = 0x40082102
	letKernel    = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE
)

// retNotify is SECCOMP_RET_USER_NOTIF, and retAllow SECCOMP_RET_ALLOW.
const retNotify, retAllow = 0x7fc00000, 0x7fff0000

// A server answers notifications, one at a time.
type server struct {
	file    *os.File // of fd, which stays open with it
	fd      int
	path    string // of the figures
	reading bool   // a goroutine reads the figures
	figures chan figures
}

// filter returns the program that asks the guest about two calls, and allows all others. The container's own filter
// allows no other architecture.
func filter() []unix.SockFilter {
	const numberAt, archAt = 0, 4
	load, equal, ret := uint16(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS), uint16(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K),
		uint16(unix.BPF_RET|unix.BPF_K)
	return []unix.SockFilter{
		{Code: load, K: archAt},
		{Code: equal, K: auditArch(), Jf: 3},
		{Code: load, K: numberAt},
		{Code: equal, K: unix.SYS_STATFS, Jt: 2},
		{Code: equal, K: unix.SYS_FSTATFS, Jt: 1},
		{Code: ret, K: retAllow},
		{Code: ret, K: retNotify},
	}
}

func auditArch() uint32 {
	if runtime.GOARCH == "arm64" {
		return unix.AUDIT_ARCH_AARCH64
	}
	return unix.AUDIT_ARCH_X86_64
}

// listen installs the filter on the calling thread and returns its descriptor. Signals interrupt a held call, which
// then begins again. Without that, a container could not be frozen while its guest is frozen first.
func listen() (int, error) {
	program := filter()
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const how = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, how,
		uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), unix.SetNonblock(int(fd), true)
}

// ready reports whether a notification waits.
func (s *server) ready() bool {
	p := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == unix.EINTR || err == nil && n == 1 && p[0].Revents&unix.POLLIN != 0
}

// all answers the notifications that wait.
func (s *server) all() {
	for s.ready() {
		s.one()
	}
}

// one receives a notification and answers it.
func (s *server) one() {
	var n notification
	if s.ioctl(notifReceive, unsafe.Pointer(&n)) != nil {
		return // the caller is gone
	}
	a := answer{id: n.id, flags: letKernel}
	if s.handle(&n) {
		a.flags = 0 // the result is 0
	}
	_ = s.ioctl(notifSend, unsafe.Pointer(&a)) // the caller may be gone
}

// valid reports whether the thread still waits in the call. Until it does not, its number is no other thread's.
func (s *server) valid(n *notification) bool {
	return s.ioctl(notifValid, unsafe.Pointer(&n.id)) == nil
}

func (s *server) ioctl(request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}
