package audit

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"berth/proto"
)

// cursor opens a cursor of the site's log.
func (s *site) cursor() *Cursor {
	s.t.Helper()
	c, err := s.log.Cursor()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// rest reads the numbers of all entries from the cursor on, and the ends of the gaps among them.
func (s *site) rest(c *Cursor) (seqs, gaps []int64) {
	s.t.Helper()
	err := c.Read(s.t.Context(), Reader{
		Wanted: func([]byte) bool { return true },
		Entry:  func(e proto.AuditEntry) error { seqs = append(seqs, e.Seq); return nil },
		Gap:    func(_, to int64) error { gaps = append(gaps, to); return nil },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return seqs, gaps
}

// to returns the numbers from one to another.
func numbers(from, to int64) (list []int64) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// A cursor finds every entry in every segment, by number and by time, and goes on with new ones in later segments.
func TestCursorFindsEveryEntry(t *testing.T) {
	s := newSite(t, 2000)
	var second atomic.Int64
	s.cfg.Now = func() time.Time { return time.Unix(1000+second.Add(1), 0) }
	s.open().fill(60)
	last, _ := s.log.Head()
	if s.log.out.newest() < 5 || s.log.out.newest() > Window {
		t.Fatalf("%d segments", s.log.out.newest())
	}
	c := s.cursor()
	var times []proto.Time
	if err := c.Read(t.Context(), Reader{Wanted: func([]byte) bool { return true },
		Entry: func(e proto.AuditEntry) error { times = append(times, e.Time); return nil }}); err != nil {
		t.Fatal(err)
	}
	for seq := range last {
		all, err := c.SeekAfter(seq)
		if err != nil || !all {
			t.Fatalf("behind %d: %v %v", seq, all, err)
		}
		if got, gaps := s.rest(c); !slices.Equal(got, numbers(seq+1, last)) || gaps != nil {
			t.Fatalf("behind %d: %v, gaps %v", seq, got, gaps)
		}
		if err := c.SeekTime(times[seq]); err != nil {
			t.Fatal(err)
		}
		if got, _ := s.rest(c); !slices.Equal(got, numbers(seq+1, last)) {
			t.Fatalf("from the time of %d: %v", seq+1, got)
		}
	}
	s.fill(20)
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, gaps := s.rest(c); !slices.Equal(got, numbers(last+1, last+20)) || gaps != nil {
		t.Fatalf("new ones: %v, gaps %v", got, gaps)
	}
}

// A segment larger than the steps of a bisection is searched as well.
func TestCursorBisects(t *testing.T) {
	s := newSite(t, 0).open()
	note := string(bytes.Repeat([]byte("x"), 1000))
	const entries = 4000
	for range entries {
		s.log.Append(proto.AuditEntry{Act: "exec.end", Note: note})
	}
	c := s.cursor()
	for _, seq := range []int64{0, 1, 2, 500, 1999, 2000, 3000, entries, entries + 1} {
		if all, err := c.SeekAfter(seq); err != nil || !all {
			t.Fatalf("behind %d: %v %v", seq, all, err)
		}
		if got, _ := s.rest(c); !slices.Equal(got, numbers(seq+1, entries+1)) {
			t.Fatalf("behind %d: %d entries", seq, len(got))
		}
	}
}

// Missing segments are reported: before the cursor by SeekAfter, and behind it as a gap.
func TestCursorReportsMissingSegments(t *testing.T) {
	s := newSite(t, 2000).open().fill(60)
	c := s.cursor()
	first := func(n int) int64 {
		seq, ok := lineSeq(s.lines(segmentName(n))[0])
		if !ok {
			t.Fatal("no number")
		}
		return seq
	}
	second, third, fourth := first(2), first(3), first(4)
	for _, n := range []int{1, 3} {
		if err := os.Remove(s.path(segmentName(n))); err != nil {
			t.Fatal(err)
		}
	}
	for seq, want := range map[int64]bool{0: false, second - 2: false, second: true, fourth: true} {
		all, err := c.SeekAfter(seq)
		if err != nil || all != want {
			t.Errorf("behind %d: %v %v", seq, all, err)
		}
	}
	if _, err := c.SeekAfter(second); err != nil {
		t.Fatal(err)
	}
	if got, gaps := s.rest(c); got[0] != second+1 || !slices.Equal(gaps, []int64{fourth - 1}) ||
		slices.Contains(got, third) {
		t.Errorf("%v, gaps %v", got, gaps)
	}
}

// After an error of its reader, a cursor continues with the same entry.
func TestCursorContinuesAfterAnError(t *testing.T) {
	s := newSite(t, 2000).open().fill(10)
	c := s.cursor()
	full, fail := errors.New("full"), true
	var seqs []int64
	r := Reader{Wanted: func([]byte) bool { return true }, Entry: func(e proto.AuditEntry) error {
		if e.Seq == 5 && fail {
			return full
		}
		seqs = append(seqs, e.Seq)
		return nil
	}}
	if err := c.Read(t.Context(), r); !errors.Is(err, full) {
		t.Fatal(err)
	}
	fail = false
	if err := c.Read(t.Context(), r); err != nil || !slices.Equal(seqs, numbers(1, 11)) {
		t.Errorf("%v %v", seqs, err)
	}
}
