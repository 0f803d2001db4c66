package proc

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A shield makes the kernel kill children before the guest when memory is short. The guest is small, and its death
// ends the whole container. A nil shield does nothing.
type shield struct {
	f          *os.File
	own, child []byte // OOM scores
}

// ChildScore is added to the guest's own OOM score for every child, in thousandths of all memory. The maximum score
// is 1000.
const ChildScore = 300

func newShield() *shield {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	var b [8]byte
	n, _ := f.ReadAt(b[:], 0)
	own, err := strconv.Atoi(string(bytes.TrimSpace(b[:n]))) // after a failed read, n is 0
	if err != nil {
		_ = f.Close()
		return nil
	}
	return &shield{f, strconv.AppendInt(nil, int64(own), 10), strconv.AppendInt(nil, int64(min(own+ChildScore, 1000)),
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
