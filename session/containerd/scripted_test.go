package containerd

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// TestScriptIsLikeRunc: nothing that can be seen in a container, or that the kernel has of it, tells whether runc made it or a script. At last the daemon keeps to one processor,
// and containers do not.
func TestScriptIsLikeRunc(t *testing.T) {
	r := needsScripts(t)
	other := proto.Limits{CPUs: 0.25, MemoryBytes: 64 << 20, PIDs: 33, DiskBytes: 48 << 20, OpenFiles: 300}
	for i, limits := range []proto.Limits{testLimits, other, testLimits} {
		if i == 2 {
			keepToOneProcessor(t)
		}
		r.scripted.filter.Store(nil)
		want := portrait(t, r, limits)
		if r.scripted.filter.Load() == nil {
			t.Fatal("no filter was learned from what runc made")
		}
		have := portrait(t, r, limits)
		if r.scripted.failures.Load() != 0 {
			t.Fatal("the script failed, so that runc made both")
		}
		for what, w := range want {
			if have[what] != w {
				t.Errorf("%+v: %s\n--- runc:\n%s\n--- script:\n%s", limits, what, w, have[what])
			}
		}
		if len(want) != len(have) {
			t.Errorf("%v and %v", slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)))
		}
	}
}

// keepToOneProcessor has all threads of the test, and those that come, run on one processor until the test is over.
func keepToOneProcessor(t *testing.T) {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for n := range 1024 {
		if all.IsSet(n) {
			one.Set(n)
			break
		}
	}
	keep := func(set *unix.CPUSet) {
		for _, name := range entries(t, "/proc/self/task") {
			if tid, err := strconv.Atoi(name); err == nil {
				_ = unix.SchedSetaffinity(tid, set) // it may have ended
			}
		}
	}
	keep(&one)
	t.Cleanup(func() { keep(&all) })
}

// TestScriptWords: a script that waits is heard whether it says so before or after its parent has told its number, and not before both.
func TestScriptWords(t *testing.T) {
	for _, words := range [][2]uint64{{scriptChild, scriptWaits}, {scriptWaits, scriptChild}} {
		answer, answers, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if err := binary.Write(answers, binary.NativeEndian, [3]uint64{word, 77}); err != nil {
				t.Fatal(err)
			}
		}
		n := &nascent{script: &script{}, answer: answer}
		if err := n.setUp(t.Context()); err != nil || n.pid != 77 {
			t.Errorf("%v: process %d, %v", words, n.pid, err)
		}
		answers.Close()
		if err := (&nascent{script: &script{}, answer: answer}).setUp(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after it ended: %v", err)
		}
		answer.Close()
	}
}

// needsScripts is a Runtime that makes sandboxes by scripts.
func needsScripts(t *testing.T) *Runtime {
	t.Helper()
	r := openTest(t)
	learnFilter(t, r)
	return r
}

// learnFilter has runc make a sandbox, so that the next ones are a script's.
func learnFilter(t *testing.T, r *Runtime) {
	t.Helper()
	if !scripts || !r.ownCounts {
		t.Skip("this machine runs no scripts")
	}
	id, _ := startTest(t, r, proto.ClassRunc)
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if r.scripted.filter.Load() == nil {
		t.Fatal("no filter was learned from what runc made")
	}
}

// byScript reports whether a running sandbox was made by a script: runc leaves a configuration.
func byScript(r *Runtime, id string) bool {
	return r.isDirect(id) && !exists(filepath.Join(r.directPath(id), "config.json"))
}

// TestScriptFilter: what a script loads is what runc loads.
func TestScriptFilter(t *testing.T) {
	r := needsScripts(t)
	want := r.scripted.known()
	id, _ := startTest(t, r, proto.ClassRunc)
	if !byScript(r, id) {
		t.Fatal("the second sandbox was made by runc")
	}
	pid, err := r.livePID(id)
	if err != nil {
		t.Fatal(err)
	}
	got, err := filterOf(pid, func() error { return isIn(id, pid) })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("it has %d instructions, runc's has %d; %v", len(got), len(want), err)
	}
	if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
		t.Errorf("after that it answers %q", got)
	}
	not := errors.New("not this one")
	if _, err := filterOf(pid, func() error { return not }); !errors.Is(err, not) {
		t.Errorf("the filter of another was read: %v", err)
	}
	if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
		t.Errorf("after that it answers %q", got)
	}
}

// TestScriptOfNoUse: where a script fails, before it begins or as it ends, runc makes the sandbox, and after three that failed all others. Nothing of a script's is left.
func TestScriptOfNoUse(t *testing.T) {
	r := needsScripts(t)
	good := r.scripted.known()
	before := holdings(t, r)
	round := func(want bool) {
		t.Helper()
		id, spec := startTest(t, r, proto.ClassRunc)
		if got := byScript(r, id); got != want {
			t.Errorf("made by a script: %v", got)
		}
		if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
			t.Errorf("it answers %q", got)
		}
		if err := errors.Join(r.Stop(t.Context(), id), r.RemoveWorkspace(t.Context(), spec.Workspace)); err != nil {
			t.Error(err)
		}
		nothingOf(t, r, []string{id})
	}
	long, refused := make([]unix.SockFilter, scriptSize/8), []unix.SockFilter{{Code: 0xffff}}
	for range manyFailures + 1 {
		r.scripted.filter.Store(&long) // as of an image with too many variables
		round(false)
	}
	if r.scripted.why.Load() != nil {
		t.Error("what is one image's counts for all")
	}
	for range manyFailures - 1 {
		r.scripted.filter.Store(&refused)
		round(false)
		if why := r.scripted.why.Load(); why == nil || !errors.Is(*why, unix.EINVAL) { // which doctor tells
			t.Errorf("the reason is %v", why)
		}
	}
	r.scripted.filter.Store(&good)
	round(true) // which makes good what was
	for range manyFailures {
		if r.scripted.hopeless() {
			t.Fatal("given up early")
		}
		r.scripted.filter.Store(&refused)
		round(false)
	}
	r.scripted.filter.Store(&good)
	round(false)
	noMore(t, r, before)
}

// TestScriptSteps: steps are left out, put up with and given up as they say, and what fails is named.
func TestScriptSteps(t *testing.T) {
	r := needsScripts(t)
	next := uint64(0)
	say := func(s *script) {
		next++
		s.say("saying", scriptWaits, next)
	}
	missing := func(s *script) *step {
		return s.do("opening what is not there", unix.SYS_OPENAT, atCwd, s.text("/no/such/file"), unix.O_RDONLY)
	}
	s := &script{}
	s.do("returning something", unix.SYS_GETPID).skip = 1
	say(s) // 1: left out
	s.do("forgetting the mask", unix.SYS_UMASK, 0)
	s.do("returning 0", unix.SYS_UMASK, 0).zero = 1
	say(s) // 2: left out
	fine := missing(s)
	fine.fine, fine.skip = unix.ENOENT, 1
	say(s) // 3: left out
	instead := missing(s)
	instead.instead, instead.skip = unix.ENOENT, 1
	say(s) // 4
	open := s.do("opening", unix.SYS_OPENAT, atCwd, s.text("/dev/null"), unix.O_RDONLY)
	closes := s.do("closing", unix.SYS_CLOSE, 1<<20)
	open.to = closes.argument(0)
	say(s) // 5
	missing(s).fine = unix.EACCES
	say(s)
	said, err := runAlone(t, r, s)
	if !slices.Equal(said, []uint64{4, 5}) || !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "opening what is not there") {
		t.Errorf("it said %v and %v", said, err)
	}
	s, next = &script{}, 0
	say(s)
	s.wait("waiting")
	say(s)
	if said, err := runAlone(t, r, s); !slices.Equal(said, []uint64{1}) || err == nil || !strings.Contains(err.Error(), "waiting: nothing came") {
		t.Errorf("without a daemon it said %v and %v", said, err)
	}
}

// runAlone has a script do its steps as if the daemon had ended, and returns the numbers that it said and its end.
func runAlone(t *testing.T, r *Runtime, s *script) (said []uint64, err error) {
	t.Helper()
	n, err := r.starter.start(s, "")
	if err != nil {
		t.Fatal(err)
	}
	defer n.answer.Close()
	n.ask.Close()
	for {
		_, value, err := n.hear()
		if err != nil {
			return said, err
		}
		said = append(said, value)
	}
}

// TestGuestEnvironment: of a variable that an image has twice the last counts, as with runc, and what is none is left out.
func TestGuestEnvironment(t *testing.T) {
	for _, c := range []struct{ image, want []string }{
		{nil, []string{defaultPath, "HOME=/"}},
		{[]string{"A=1", "PATH=/x", "A=2", "HOME=", "=3", "no", "B=\x00"}, []string{"HOME=/", "PATH=/x", "A=2"}},
		{[]string{"HOME=/a", "HOME=/b"}, []string{defaultPath, "HOME=/b"}},
	} {
		if got := processEnv(c.image); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q", c.image, got)
		}
	}
}
