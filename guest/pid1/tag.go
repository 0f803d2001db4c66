package pid1

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A tag identifies the command of a process, even if the process has changed its parent, session, process group and
// environment. It is the limit of file locks (RLIMIT_LOCKS). Linux keeps the limit per process, children inherit it,
// and the kernel has not enforced it since 2.4.25. Tags count down. Without CAP_SYS_RESOURCE a process can lower its
// limit but not raise it, so it cannot take the tag of an earlier command. It can take the tag of a later command,
// and then counts as that command's. Zero is no tag.
type tag uint64

const rlimitLocks = 10

// firstTag is where counting starts.
const firstTag tag = 1 << 40

// tags issues tags. The limit belongs to the whole process, so this is a global variable.
var tags struct {
	sync.Mutex
	start, last tag
	broken      bool // the kernel does not support the limit
}

// nextTag returns a tag for the child that is started next, or 0 where tags do not work.
func nextTag() tag {
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
func (m tag) stamp() {
	if m != 0 {
		_ = m.limit() // the first tag succeeded, and later ones are lower
	}
}

func (m tag) limit() error {
	return unix.Setrlimit(rlimitLocks, &unix.Rlimit{Cur: uint64(m), Max: uint64(m)})
}

// ceiling returns the highest tag that the guest may set.
func ceiling() tag {
	var l unix.Rlimit
	if err := unix.Getrlimit(rlimitLocks, &l); err != nil {
		tags.broken = true
		return 0
	}
	return min(firstTag, tag(min(l.Max, math.MaxInt64)))
}

// issued reports whether this process issued m.
func issued(m tag) bool {
	tags.Lock()
	defer tags.Unlock()
	return m != 0 && m >= tags.last && m < tags.start
}

// tagOf reads the tag of a process. It returns zero if it cannot.
func tagOf(pid int) tag {
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
	if err != nil {
		return 0
	}
	return tag(n)
}

// A shield makes the kernel kill children before the guest when memory is short. The guest is small, and its death
// ends the whole container. A nil shield does nothing.
type shield struct {
	f          *os.File
	own, child []byte // OOM scores
}

// childScore is added to the guest's own OOM score for every child, in thousandths of all memory. The maximum score
// is 1000.
const childScore = 300

func newShield() *shield {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	var b [8]byte
	n, err := f.ReadAt(b[:], 0)
	if n == 0 && err != nil {
		_ = f.Close()
		return nil
	}
	own, err := strconv.Atoi(string(bytes.TrimSpace(b[:n])))
	if err != nil {
		_ = f.Close()
		return nil
	}
	return &shield{f, strconv.AppendInt(nil, int64(own), 10), strconv.AppendInt(nil, int64(min(own+childScore, 1000)),
		10)}
}

// with runs fn while children inherit the higher score. The guest may restore its score, since that is not below the
// score at its start.
func (s *shield) with(fn func()) {
	if s == nil {
		fn()
		return
	}
	_, err := s.f.WriteAt(s.child, 0)
	fn()
	if err == nil {
		_, _ = s.f.WriteAt(s.own, 0)
	}
}

// bootTicks returns the time since boot in the unit of start times in /proc.
func bootTicks() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	const perSecond = 100 // USER_HZ, which is 100 on every architecture that Go supports
	return uint64(ts.Sec)*perSecond + uint64(ts.Nsec)/(1e9/perSecond)
}
