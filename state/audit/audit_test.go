package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/test/needs"

	"golang.org/x/sys/unix"
)

// A site is a directory with a ledger and a log in it.
type site struct {
	t   *testing.T
	dir string
	db  *ledger.DB
	cfg Config
	log *Log
}

func newSite(t *testing.T, segment int64) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	var err error
	if s.db, err = ledger.Open(filepath.Join(t.TempDir(), "ledger.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close() })
	s.cfg = Config{Dir: s.dir, Ledger: s.db, SegmentBytes: segment, SyncEvery: 10 * time.Millisecond,
		RetryEvery: 10 * time.Millisecond}
	return s
}

func (s *site) open() *site {
	s.t.Helper()
	var err error
	if s.log, err = Open(s.cfg); err != nil {
		s.t.Fatal(err)
	}
	return s
}

func (s *site) close() *site {
	s.t.Helper()
	if err := s.log.Close(); err != nil {
		s.t.Fatal(err)
	}
	return s
}

// fill writes n entries.
func (s *site) fill(n int) *site {
	for i := range n {
		s.log.Append(proto.AuditEntry{Act: "container.create", Outcome: proto.AuditOK, Actor: "key_1", Owner: "me",
			ContainerID: fmt.Sprintf("container_%d", i)})
	}
	return s
}

// verify checks the log against the ledger's anchor.
func (s *site) verify() Report {
	s.t.Helper()
	a, ok, err := ReadAnchor(s.db)
	if err != nil || !ok {
		s.t.Fatalf("no anchor: %v", err)
	}
	r, err := Verify(s.dir, a.Head())
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) lines(name string) [][]byte {
	s.t.Helper()
	data, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

func (s *site) rewrite(name string, lines [][]byte) {
	s.t.Helper()
	for i, l := range lines {
		lines[i] = append(bytes.TrimSuffix(l, []byte("\n")), '\n')
	}
	if err := os.WriteFile(s.path(name), bytes.Join(lines, nil), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func TestChain(t *testing.T) {
	s := newSite(t, 2000).open().fill(20).close().open().fill(20).close()
	list, err := segments(s.dir)
	if err != nil || len(list) < 4 || list[len(list)-1].name != current {
		t.Fatalf("%v %v", list, err)
	}
	r := s.verify()
	if r.Bad != nil || r.Seq != 42 || r.Entries != 42 || r.Beyond != 0 { // two log.open
		t.Fatalf("%+v %+v", r, r.Bad)
	}
	// The rule of the documentation, with nothing of ours.
	prev := strings.Repeat("0", 64)
	for _, seg := range list {
		for _, line := range s.lines(seg.name) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			body := line[:len(line)-75]
			sum := sha256.Sum256(body)
			var e struct{ Prev, Hash string }
			if err := json.Unmarshal(line, &e); err != nil || e.Prev != prev || e.Hash != hex.EncodeToString(sum[:]) {
				t.Fatalf("%v: %s", err, line)
			}
			prev = e.Hash
		}
	}
	if prev != r.Hash {
		t.Error("the head is another")
	}
	if fi, _ := os.Stat(s.path(current)); fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
}

// Every change to a log that was closed is found, and told as what it is.
func TestTamperingIsFound(t *testing.T) {
	const old = "audit-000002.log"
	swap := func(l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l }
	for name, c := range map[string]struct {
		kind string
		do   func(s *site)
	}{
		"cut":       {BadCut, func(s *site) { s.rewrite(old, slices.Delete(s.lines(old), 2, 3)) }},
		"cut first": {BadCut, func(s *site) { s.rewrite("audit-000001.log", s.lines("audit-000001.log")[1:]) }},
		"reordered": {BadReordered, func(s *site) { s.rewrite(old, swap(s.lines(old))) }},
		"duplicated": {BadDuplicated, func(s *site) {
			l := s.lines(old)
			s.rewrite(
				old, slices.Insert(l, 3, bytes.Clone(l[2])))
		}},
		"segment":       {BadSegment, func(s *site) { _ = os.Remove(s.path(old)) }},
		"first segment": {BadSegment, func(s *site) { _ = os.Remove(s.path("audit-000001.log")) }},
		"current":       {BadTail, func(s *site) { _ = os.Remove(s.path(current)) }},
		"tail":          {BadTail, func(s *site) { l := s.lines(current); s.rewrite(current, l[:len(l)-1]) }},
		"all": {BadTail, func(s *site) {
			l, _ := segments(s.dir)
			for _, x := range l {
				_ = os.Remove(s.path(x.name))
			}
		}},
		"torn": {BadTorn, func(s *site) {
			fi, _ := os.Stat(s.path(current))
			_ = os.Truncate(s.path(current),
				fi.Size()-30)
		}},
		"line feed": {BadTorn, func(s *site) {
			fi, _ := os.Stat(s.path(current))
			_ = os.Truncate(s.path(current),
				fi.Size()-1)
		}},
		"inserted": {BadInserted, func(s *site) {
			l := s.lines(old)
			s.rewrite(old, slices.Insert(l, 2, forged(l[1])))
		}},
		"appended": {BadInserted, func(s *site) {
			l := s.lines(current)
			s.rewrite(current, append(l, forged(l[len(l)-1])))
		}},
		"rewritten from a point on": {BadHead, func(s *site) {
			l := s.lines(current)
			n := len(l)
			s.rewrite(current, append(l[:n-1], forged(l[n-2])))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 2000).open().fill(34).close()
			if r := s.verify(); r.Bad != nil {
				t.Fatalf("%+v", r.Bad)
			}
			c.do(s)
			r := s.verify()
			if r.Bad == nil || r.Bad.Kind != c.kind {
				t.Fatalf("found %+v", r.Bad)
			}
			t.Log(r.Bad.Message)
		})
	}
}

// forged is an entry that follows on line with a right hash.
func forged(line []byte) []byte {
	e, err := decode(append(bytes.TrimSuffix(bytes.Clone(line), []byte("\n")), '\n'))
	if err != nil {
		panic(err)
	}
	out, _, err := encode(proto.AuditEntry{Seq: e.Seq + 1, Prev: e.Hash, Time: e.Time, Act: "container.delete",
		Outcome: proto.AuditOK, Actor: "key_2"})
	if err != nil {
		panic(err)
	}
	return out
}

// No byte of a line can be changed: not in a member, a name, a bracket, the hash or the line feed.
func TestEachByteCounts(t *testing.T) {
	s := newSite(t, 0).open().fill(3).close()
	data, _ := os.ReadFile(s.path(current))
	second := bytes.IndexByte(data, '\n') + 1
	end := second + bytes.IndexByte(data[second:], '\n')
	for i := second; i <= end; i++ {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if err := os.WriteFile(s.path(current), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := s.verify(); r.Bad == nil {
			t.Fatalf("byte %d (%q) can be changed", i-second, data[i])
		}
	}
}

func TestNotedHeads(t *testing.T) {
	s := newSite(t, 2000).open().fill(10)
	seq, hash := s.log.Head()
	s.fill(10).close()
	for name, c := range map[string]struct {
		head Head
		bad  string
	}{
		"noted":        {Head{Seq: seq, Hash: hash}, ""},
		"hash alone":   {Head{Hash: hash}, ""},
		"other number": {Head{Seq: seq + 1, Hash: hash}, BadHead},
		"unknown hash": {Head{Hash: strings.Repeat("a", 64)}, BadHead},
		"too far":      {Head{Seq: 100, Hash: hash}, BadTail},
	} {
		r, err := Verify(s.dir, c.head)
		if err != nil || (r.Bad == nil) != (c.bad == "") || r.Bad != nil && r.Bad.Kind != c.bad {
			t.Errorf("%s: %+v %v", name, r.Bad, err)
		}
	}
}

// abandon leaves a log as a SIGKILL does: nothing is flushed, synced or anchored any more.
func (s *site) abandon() *site {
	close(s.log.stop)
	s.log.done.Wait()
	_ = s.log.out.f.Close()
	return s
}

func lastNote(t *testing.T, s *site) proto.AuditEntry {
	t.Helper()
	l := s.lines(current)
	e, err := decode(append(bytes.TrimSuffix(bytes.Clone(l[len(l)-1]), []byte("\n")), '\n'))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestStartTellsWhatItFound(t *testing.T) {
	for name, c := range map[string]struct {
		crash   bool
		do      func(s *site)
		outcome string
		says    string
		valid   bool // the log as a whole, afterwards
	}{
		"in order": {false, func(*site) {}, proto.AuditOK, "as it was left, up to entry 31", true},
		"killed":   {true, func(*site) {}, proto.AuditOK, "did not end in order", true},
		"killed in a line": {true, func(s *site) {
			f, _ := os.OpenFile(s.path(current), os.O_APPEND|os.O_WRONLY, 0)
			_, _ = f.WriteString(`{"seq":32,"prev":"`)
			f.Close()
		}, proto.AuditOK, "a torn line of 18 bytes at the end was cut off", true},
		"killed in a rotation": {true, func(s *site) {
			l, _ := segments(s.dir)
			_ = os.Rename(s.path(current), s.path(segmentName(l[len(l)-1].number)))
		}, proto.AuditOK, "did not end in order", true},
		"cut": {false, func(s *site) { l := s.lines(current); s.rewrite(current, l[:len(l)-1]) }, outcomeDamaged,
			"entries 31 to 31, which the ledger knows, are missing", false},
		"gone": {false, func(s *site) {
			l, _ := segments(s.dir)
			for _, x := range l {
				_ = os.Remove(s.path(x.name))
			}
		},
			outcomeDamaged, "entries 1 to 31, which the ledger knows, are missing", false},
		"appended": {false, func(s *site) { l := s.lines(current); s.rewrite(current, append(l, forged(l[len(l)-1]))) },
			outcomeDamaged, "added after the daemon had ended", true}, // from here on it is in the log that it happened
		"edited": {false, func(s *site) {
			l := s.lines(current)
			l[0] = bytes.Replace(l[0], []byte("me"), []byte("ME"), 1)
			s.rewrite(current, l)
		},
			outcomeDamaged, "1 lines of the last segment are no valid entries", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 2000).open().fill(30)
			if c.crash {
				s.abandon()
			} else {
				s.close()
			}
			c.do(s)
			s.cfg.SegmentBytes = 1 << 20 // so that the new entry is where lastNote looks
			s.open().close()
			if e := lastNote(t, s); e.Act != "log.open" || e.Outcome != c.outcome || !strings.Contains(e.Note, c.says) {
				t.Errorf("%+v", e)
			}
			if r := s.verify(); (r.Bad == nil) != c.valid {
				t.Errorf("%+v", r.Bad)
			}
		})
	}
}

// Written by many, read by one who follows: everybody's entries are there once, in one chain, across segments.
func TestConcurrentWriters(t *testing.T) {
	s := newSite(t, 20_000).open()
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan int)
	go func() {
		n, after := 0, int64(0)
		err := s.log.Read(ctx, Filter{}, true, func(line []byte) error {
			e, err := decode(line)
			if err != nil || e.Seq != after+1 {
				t.Errorf("the follower got %d after %d: %v", e.Seq, after, err)
			}
			after = e.Seq
			if n++; n == 1601 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		followed <- n
	}()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { s.fill(100) })
	}
	wg.Wait()
	if n := <-followed; n != 1601 {
		t.Errorf("the follower got %d entries", n)
	}
	s.close()
	if r := s.verify(); r.Bad != nil || r.Seq != 1601 {
		t.Errorf("%+v %+v", r, r.Bad)
	}
}

// On a disk that is really full nothing is lost: entries wait, Ready says so, and the chain goes on as if nothing had
// been.
func TestFullDisk(t *testing.T) {
	s := newSite(t, 20_000)
	needs.Root(t)
	if err := unix.Mount("tmpfs", s.dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.dir, unix.MNT_DETACH) })
	s.open().fill(20)
	if err := s.log.Ready(); err != nil {
		t.Fatal(err)
	}
	filler := s.path("filler")
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	s.fill(200)
	err := s.log.Ready()
	if proto.CodeOf(err) != proto.Unavailable || !strings.Contains(err.Error(), "audit log") ||
		strings.Contains(err.Error(), s.dir) {
		t.Fatalf("%v", err)
	}
	before, _ := s.log.Head()
	if before >= 221 {
		t.Fatal("the disk is not full")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); s.log.Ready() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is room, and it is not used")
		}
	}
	s.fill(1).close()
	if r := s.verify(); r.Bad != nil || r.Seq != 222 {
		t.Errorf("%+v %+v", r, r.Bad)
	}
}

// What there is no memory for is told, never dropped in silence.
func TestFullQueue(t *testing.T) {
	s := newSite(t, 0)
	s.cfg.QueueBytes = 4000
	needs.Root(t)
	if err := unix.Mount("tmpfs", s.dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.dir, unix.MNT_DETACH) })
	s.open()
	filler := s.path("filler")
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	s.fill(100)
	_ = os.Remove(filler)
	for deadline := time.Now().Add(10 * time.Second); s.log.Ready() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is room, and it is not used")
		}
	}
	s.fill(1).close()
	lost := int64(0)
	_ = Read(s.dir, Filter{Action: "log.lost"}, func(line []byte) error {
		e, _ := decode(line)
		_, err := fmt.Sscanf(e.Note, "%d entries", &lost)
		return err
	})
	r := s.verify()
	if r.Bad != nil || lost == 0 || r.Seq != 1+100+1+1-lost {
		t.Errorf("%d of %d lost: %+v", lost, r.Seq, r.Bad)
	}
}

func TestHostileWords(t *testing.T) {
	s := newSite(t, 0).open()
	evil := "a\nb\r\x1b[2J\x9b\x7f\"},\"hash\":\"x\"}\n{\"seq\":9\u2028\u202e😀\xff</script>"
	s.log.Append(proto.AuditEntry{Act: "exec.end", Outcome: proto.AuditOK, Item: evil, Note: strings.Repeat(evil, 1000),
		Exec: &proto.AuditExec{Command: strings.Repeat(evil, 400), Produced: []string{evil}}})
	s.close()
	if r := s.verify(); r.Bad != nil || r.Seq != 2 {
		t.Fatalf("%+v", r)
	}
	l := s.lines(current)
	if len(l) != 2 {
		t.Fatalf("%d lines", len(l))
	}
	if i := bytes.IndexFunc(l[1], func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 && i != len(l[1])-1 {
		t.Errorf("byte %q is not escaped", l[1][i])
	}
	var e proto.AuditEntry
	if err := json.Unmarshal(l[1], &e); err != nil || e.Item != strings.ToValidUTF8(evil, "\uFFFD") {
		t.Errorf("%v %q", err, e.Item)
	}
}

func TestFilter(t *testing.T) {
	s := newSite(t, 2000).open().fill(30)
	s.log.Append(proto.AuditEntry{Act: "container.delete", Outcome: proto.AuditOK, Actor: "sweeper",
		ContainerID: "container_7"})
	s.close()
	for want, f := range map[int]Filter{
		32: {}, 2: {Container: "container_7"}, 1: {Actor: "sweeper"}, 31: {Action: "container."},
		30: {Action: "container.create"},
		5:  {Action: "container.", Last: 5}, 0: {Until: time.Unix(1, 0)},
	} {
		n, last := 0, int64(0)
		err := Read(s.dir, f, func(line []byte) error {
			e, err := decode(line)
			if n++; e.Seq <= last {
				t.Errorf("%d after %d", e.Seq, last)
			}
			last = e.Seq
			return err
		})
		if err != nil || n != want {
			t.Errorf("%+v: %d, want %d: %v", f, n, want, err)
		}
	}
}

// A crowd that has more to say than the queue holds waits for it: no entry is lost while the log can be written.
func TestCrowdLosesNoEntry(t *testing.T) {
	s := newSite(t, 0)
	s.cfg.QueueBytes = 2000
	s.open()
	const many, each = 16, 40
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			for range each {
				s.log.Append(proto.AuditEntry{Act: "crowd", Actor: fmt.Sprint(i), Note: strings.Repeat("x", 500)})
			}
		})
	}
	wg.Wait()
	s.close()
	n := 0
	if err := Read(s.dir, Filter{Action: "crowd"}, func([]byte) error { n++; return nil }); err != nil || n != many*each {
		t.Errorf("%d of %d entries: %v", n, many*each, err)
	}
}

// TestFirstEntryFollowsTheAnchor checks that the ledger knows of a new daemon before the first entry is written.
// Otherwise a power cut between the two would make that entry look like one added after the end.
func TestFirstEntryFollowsTheAnchor(t *testing.T) {
	s := newSite(t, 0).open().fill(1).close()
	entries := len(s.lines(current))
	s.cfg.Now = func() time.Time { // called for each entry before it is written
		if a, _, err := ReadAnchor(s.db); err != nil || a.Closed && len(s.lines(current)) == entries {
			t.Errorf("before the first entry the ledger says %+v; %v", a, err)
		}
		return time.Now()
	}
	if _, err := Open(s.cfg); err != nil {
		t.Fatal(err)
	}
}

// TestLostRecordsAreNotTheLogsFault checks that a ledger that lost its newest anchors does not make the log look
// damaged.
func TestLostRecordsAreNotTheLogsFault(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	db, err := ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := &site{t: t, dir: dir, db: db, cfg: Config{Dir: dir, Ledger: db}}
	s.open().fill(3).close()
	if err := db.Copy(filepath.Join(dir, "copy")); err != nil { // with an anchor that says that the log is closed
		t.Fatal(err)
	}
	s.open().fill(3).abandon()
	db.Close()
	lossy := filepath.Join(dir, "lossy.db")
	if err := os.Rename(filepath.Join(dir, "copy"), lossy); err != nil {
		t.Fatal(err)
	}
	killed, err := ledger.Open(lossy) // never closed, so it needs its journal
	if err != nil {
		t.Fatal(err)
	}
	defer killed.Close()
	other := filepath.Join(dir, "other.db")
	text, err := os.ReadFile(lossy)
	if err == nil {
		err = os.WriteFile(other, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Open(other); err == nil {
		t.Fatal("a ledger without its journal is taken")
	}
	if s.db, err = ledger.OpenLossy(other); err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()
	s.cfg.Ledger = s.db
	s.open().close()
	if e := lastNote(t, s); e.Outcome != proto.AuditOK || !strings.Contains(e.Note, "the ledger lost records") ||
		!strings.Contains(e.Note, "4 entries after the last one that it still knows are there") {
		t.Errorf("%+v", e)
	}
	if r := s.verify(); r.Bad != nil {
		t.Errorf("%+v", r.Bad)
	}
}
