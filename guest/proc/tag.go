package proc

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A Tag identifies the command of a process, even if the process has changed its parent, session, process group and
// environment. It is the limit of file locks (RLIMIT_LOCKS). Linux keeps the limit per process, children inherit it,
// and the kernel has not enforced it since 2.4.25. Tags count down. Without CAP_SYS_RESOURCE a process can lower its
// limit but not raise it, so it cannot take the tag of an earlier command. It can take the tag of a later command,
// and then counts as that command's. Zero is no tag.
type Tag uint64

// LimitOfTag is the resource limit that holds the tag, RLIMIT_LOCKS.
const LimitOfTag = 10

// firstTag is where counting starts.
const firstTag Tag = 1 << 40

// tags issues tags. The limit belongs to the whole process, so this is a global variable.
var tags struct {
	sync.Mutex
	start, last Tag
	broken      bool // the kernel does not support the limit
}

// nextTag returns a tag for the child that is started next, or 0 where tags do not work.
func nextTag() Tag {
	tags.Lock()
	defer tags.Unlock()
	if tags.start == 0 && !tags.broken {
		tags.start = ceiling()
		tags.last = tags.start
		tags.broken = tags.start.limit() != nil
	}
	if tags.broken || tags.last <= 1 {
		return 0
	}
	tags.last--
	return tags.last
}

// stamp sets the guest's own limit to the tag. The child that is started next inherits it.
func (tag Tag) stamp() {
	if tag != 0 {
		_ = tag.limit() // the first tag succeeded, and later ones are lower
	}
}

func (tag Tag) limit() error {
	return unix.Setrlimit(LimitOfTag, &unix.Rlimit{Cur: uint64(tag), Max: uint64(tag)})
}

// ceiling returns the highest tag that the guest may set.
func ceiling() Tag {
	var l unix.Rlimit
	if err := unix.Getrlimit(LimitOfTag, &l); err != nil {
		tags.broken = true
		return 0
	}
	return min(firstTag, Tag(min(l.Max, math.MaxInt64)))
}

// issued reports whether this process issued the tag.
func issued(tag Tag) bool {
	tags.Lock()
	defer tags.Unlock()
	return tag != 0 && tag >= tags.last && tag < tags.start
}

// tagOf reads the tag of a process. It returns zero if it cannot.
func tagOf(pid int) Tag {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0
	}
	_, line, ok := bytes.Cut(b, []byte("Max file locks"))
	if !ok {
		return 0
	}
	fields := bytes.Fields(line)
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(fields[1]), 10, 64) // the hard limit
	if err != nil {                                        // such as "unlimited"
		return 0
	}
	return Tag(n)
}
