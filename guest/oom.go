package guest

import (
	"bytes"
	"os"
	"strconv"
)

// An oomCounter reads how often the kernel has killed something in this container's
// cgroup for want of memory. Nil where the container cannot see it.
type oomCounter struct{ f *os.File }

// oomFiles are where cgroups v2 and v1 tell it. Both have a line "oom_kill N".
var oomFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

func newOOMCounter() *oomCounter {
	for _, name := range oomFiles {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if c := (&oomCounter{f}); c.kills() >= 0 {
			return c
		}
		_ = f.Close()
	}
	return nil
}

// kills is the count, or -1 if it cannot be told.
func (c *oomCounter) kills() int64 {
	if c == nil {
		return -1
	}
	var buf [512]byte
	n, err := c.f.ReadAt(buf[:], 0)
	if n == 0 && err != nil {
		return -1
	}
	for line := range bytes.Lines(buf[:n]) {
		if v, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			count, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			if err == nil {
				return count
			}
		}
	}
	return -1
}

func (c *oomCounter) close() {
	if c != nil {
		_ = c.f.Close()
	}
}
