package pid1

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// lastPID tells whether any process was made since nothing ran in the container but the guest's own processes. The
// kernel numbers processes in sequence and reports the last number in /proc/loadavg, which is read in a tenth of the
// time of a list of processes. Threads have numbers too: a new thread looks like a new process, and the list of
// processes then shows the difference.
type lastPID struct {
	f *os.File // nil if it does not tell

	mu   sync.Mutex
	last int // the number given out last when nothing ran, the guest's own since then included; 0 if that is not known
}

// newLastPID is for a container whose processes the guest sees and inherits.
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

// unchanged reports whether no process was made. It can be true only after expect.
func (b *lastPID) unchanged() bool {
	latest := b.read()
	b.mu.Lock()
	defer b.mu.Unlock()
	return latest != 0 && latest == b.last
}

// expect records that nothing ran at a moment when that number was the last one.
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

// readFirst reads the beginning of a file of the kernel's that is kept open. It is 0 if there is none.
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
