// Package capacity answers statfs and fstatfs of a container's processes with the disk limit and the use of the
// container, where the kernel would answer with those of the disk pool. So df, and programs that ask how much room
// there is, are right. sysinfo keeps the kernel's answer: bash asks for it at each start, in the C library's qsort, and
// would take longer.
//
// The kernel holds up each of these calls and tells the guest (seccomp's user notification). The guest takes the
// figures from a file that the daemon writes when it is read, see runtime/inside. It looks at the process with that
// process's own user, so that it learns nothing for it which the process could not learn itself. When in doubt, it lets
// the kernel answer: a path behind a link of /proc, another root, memory that cannot be read, a file system without a
// limit. Then the kernel reads the arguments again, and nothing that was read before counts.
//
// Start installs the filter on the calling thread, which starts all processes of the container; they inherit it. The
// guest's other threads do not have it, so the guest never waits for itself. If the guest ends, the container does.
// There is no filter where there is no file of figures, where the kernel has no such notification, and where the guest
// has not renounced new privileges, as in containers with sudo. With BERTH_CAPACITY=off in the image's environment, the
// daemon makes no such file.
package capacity

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// figuresPath is the file of figures, runtime/layer's InsideCapacity.
const figuresPath = "/.berth/capacity"

// maxWait is how long the figures may take. The daemon writes them, and may hang.
const maxWait = time.Second

// Start begins to answer for the calling thread's children, and for theirs. The caller stays on its thread, which never
// makes one of these calls afterwards: while it waits, nothing else of the guest may run. Where nothing can be
// answered, Start does nothing. An error means that the kernel answers.
func Start() error {
	return start(figuresPath)
}

// start does what Start does, with the figures at a path.
func start(path string) error {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Size == 0 {
		return nil
	}
	fd, err := listen()
	if err != nil {
		return fmt.Errorf("answering for the kernel: %w", err)
	}
	f := os.NewFile(uintptr(fd), "notifications")
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	s := &server{file: f, fd: fd, path: path, figures: make(chan figures, 1)}
	go func() {
		_ = conn.Read(func(uintptr) bool {
			s.all()
			return false
		})
		for { // where the poller does not take it; without an open descriptor, all calls would fail
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			s.all()
		}
	}()
	return nil
}

// Figures are limits and what is used of them, by name, in bytes. A limit of 0 is unknown.
type figures map[string]figure

type figure struct{ limit, used uint64 }

// left is what is left of the limit.
func (g figure) left() uint64 { return g.limit - min(g.limit, g.used) }

// parse reads the file of figures. Lines that it does not know are left out.
func parse(text []byte) figures {
	all := figures{}
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue
		}
		limit, err := strconv.ParseUint(string(f[1]), 10, 63)
		used, err2 := strconv.ParseUint(string(f[2]), 10, 63)
		if err == nil && err2 == nil {
			all[string(f[0])] = figure{limit, used}
		}
	}
	return all
}

// read returns the present figures; none if they take too long. A reader that hangs is waited for by later calls, so
// that there is one at most.
func (s *server) read() figures {
	if !s.reading {
		s.reading = true
		go func() {
			text, _ := os.ReadFile(s.path) // without it, nothing is known
			s.figures <- parse(text)
		}()
	}
	late := time.NewTimer(maxWait)
	defer late.Stop()
	select {
	case got := <-s.figures:
		s.reading = false
		return got
	case <-late.C:
		return nil
	}
}
