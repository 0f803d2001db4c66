package pid1

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// lastPID detects new processes since the moment when only the guest's own processes ran. The kernel numbers
// processes in sequence and reports the last number in /proc/loadavg. Reading that takes a tenth of the time of a
// process list. Threads have numbers too, so a new thread looks like a new process. The process list then shows the
// difference.
type lastPID struct {
	f *os.File // nil if the kernel does not report the number

	mu   sync.Mutex
	last int // last PID when nothing ran, or of a process that the guest has started since; 0 if unknown
}

// newLastPID opens /proc/loadavg. It is for a container whose processes the guest sees and inherits.
func newLastPID() *lastPID {
	b := &lastPID{}
	if f, err := os.Open("/proc/loadavg"); err == nil {
		b.f = f
	}
	return b
}

// read returns the number that the kernel gave out last, or 0 if the kernel does not report it, as gVisor's does not.
func (b *lastPID) read() int {
	var buf [128]byte
	text := bytes.TrimSpace(buf[:readFirst(b.f, buf[:])])
	n, err := strconv.Atoi(string(text[bytes.LastIndexByte(text, ' ')+1:]))
	if err != nil {
		return 0
	}
	return n
}

// unchanged reports whether no process was made since expect. Before expect it reports false.
func (b *lastPID) unchanged() bool {
	latest := b.read()
	b.mu.Lock()
	defer b.mu.Unlock()
	return latest != 0 && latest == b.last
}

// expect records that nothing ran at a moment when latest was the last PID.
func (b *lastPID) expect(latest int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = latest
}

// started records that the guest itself made a process, which belongs to a group.
func (b *lastPID) started(pid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if pid == b.last+1 {
		b.last = pid
	} else {
		b.last = 0
	}
}

func (b *lastPID) close() { _ = b.f.Close() }

// readFirst reads the beginning of an open kernel file. It returns 0 if there is no file.
func readFirst(f *os.File, b []byte) (n int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	if err := raw.Control(func(fd uintptr) { n, err = unix.Pread(int(fd), b, 0) }); err != nil {
		return 0
	}
	return max(n, 0)
}
