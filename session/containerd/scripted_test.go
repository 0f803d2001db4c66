package containerd

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// TestScriptIsLikeRunc: nothing that can be seen in a container, or that the kernel has of it, tells whether runc made it or a script.
func TestScriptIsLikeRunc(t *testing.T) {
	r := needsScripts(t)
	for _, limits := range []proto.Limits{testLimits, {CPUs: 0.25, MemoryBytes: 64 << 20, PIDs: 33, DiskBytes: 48 << 20, OpenFiles: 300}} {
		r.scripted.filter.Store(nil)
		want := portrait(t, r, limits)
		if r.scripted.filter.Load() == nil {
			t.Fatal("no filter was learned from what runc made")
		}
		have := portrait(t, r, limits)
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
	want := *r.scripted.filter.Load()
	id, _ := startTest(t, r, proto.ClassRunc)
	if !byScript(r, id) {
		t.Fatal("the second sandbox was made by runc")
	}
	pid, err := r.livePID(id)
	if err != nil {
		t.Fatal(err)
	}
	got, err := filterOf(pid)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("it has %d instructions, runc's has %d; %v", len(got), len(want), err)
	}
	if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
		t.Errorf("after that it answers %q", got)
	}
}

// TestScriptOfNoUse: where a script fails, before it begins or as it ends, runc makes the sandbox, and all after it. Nothing of the script's is left.
func TestScriptOfNoUse(t *testing.T) {
	r := needsScripts(t)
	before := holdings(t, r)
	for name, filter := range map[string][]unix.SockFilter{"too long": make([]unix.SockFilter, scriptSize/8), "refused": {{Code: 0xffff}}} {
		t.Run(name, func(t *testing.T) {
			r.scripted.filter.Store(&filter)
			defer r.scripted.hopeless.Store(nil)
			id, spec := startTest(t, r, proto.ClassRunc)
			if byScript(r, id) || r.scripted.hopeless.Load() == nil || r.scripted.filter.Load() != nil {
				t.Error("it was not left to runc")
			}
			if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
				t.Errorf("it answers %q", got)
			}
			if err := errors.Join(r.Stop(t.Context(), id), r.RemoveWorkspace(t.Context(), spec.Workspace)); err != nil {
				t.Error(err)
			}
			nothingOf(t, r, []string{id})
		})
	}
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
	n, process, err := s.start(blueprint{id: newID(proto.ContainerPrefix), maker: r.maker, userNamespace: "/proc/self/ns/user"}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer n.answer.Close()
	n.ask.Close()
	for {
		_, value, err := n.hear()
		if err != nil {
			if state, err := process.Wait(); err != nil || state.ExitCode() != 1 {
				t.Errorf("it ended with %v, %v", state, err)
			}
			return said, err
		}
		said = append(said, value)
	}
}
