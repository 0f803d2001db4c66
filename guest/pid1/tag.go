package pid1

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A tag tells which command a process belongs to, whatever it did to be rid of its parents, session, group and
// environment. It is the limit of file locks, which Linux keeps for each process, hands to children, and has not
// looked at since 2.4.25. Marks count down: without CAP_SYS_RESOURCE a process can lower its limit but not raise it,
// so it cannot take the mark of a command that was there before it; but that of a later one, and it then counts as
// that one's. Zero is no mark.
type tag uint64

const rlimitLocks = 10

// firstTag is where counting starts.
const firstTag tag = 1 << 40

// tags gives out marks. The limit is the whole process's, so there is one of them.
var tags struct {
	sync.Mutex
	start, last tag
	broken      bool // this kernel has no such limit
}

// nextTag is a mark for the child that is started next, or 0 where there are none.
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

// stamp sets the guest's own limit to the mark, for the child that is started next.
func (m tag) stamp() {
	if m != 0 {
		_ = m.limit() // which worked for the first, and they only become less
	}
}

func (m tag) limit() error {
	return unix.Setrlimit(rlimitLocks, &unix.Rlimit{Cur: uint64(m), Max: uint64(m)})
}

// ceiling is the highest mark we may set.
func ceiling() tag {
	var l unix.Rlimit
	if err := unix.Getrlimit(rlimitLocks, &l); err != nil {
		tags.broken = true
		return 0
	}
	return min(firstTag, tag(min(l.Max, math.MaxInt64)))
}

// issued reports whether m is one that this process gave out.
func issued(m tag) bool {
	tags.Lock()
	defer tags.Unlock()
	return m != 0 && m >= tags.last && m < tags.start
}

// tagOf reads the mark of a process; zero if there is none to read.
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
	n, err := strconv.ParseUint(string(fields[1]), 10, 64) // the hard one
	if err != nil {
		return 0
	}
	return tag(n)
}

// A shield makes the kernel prefer children over the guest when memory is short: without
// the guest all of the container is lost, and it is small. Nil does nothing.
type shield struct {
	f          *os.File
	own, child []byte // scores
}

// childScore is added to the guest's own score for every child, in thousandths of all memory; 1000 is
// the most there can be.
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

// with runs fn while children inherit the higher score. The guest may go back since it does not go
// below where it was.
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

// bootTicks is the time since boot in the unit that /proc tells start times in.
func bootTicks() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	const perSecond = 100 // USER_HZ, the same on every architecture that Go runs on
	return uint64(ts.Sec)*perSecond + uint64(ts.Nsec)/(1e9/perSecond)
}
