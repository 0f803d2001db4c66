package sessiontest

import (
	"context"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
)

// dozes lets the sweeper make a container doze, and checks that the next use finds everything unchanged.
func (c conformance) dozes(t *testing.T) {
	ctx := context.Background()
	st, s := c.sessionWith(t, session.Config{DozeAfter: time.Nanosecond})
	// A command's end is reported a moment before its session is unused.
	asleep := func(when string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			done, err := st.Sessions.Sweep(ctx)
			if err != nil || done.Lost != 0 || time.Now().After(deadline) {
				t.Fatalf("%s: swept %+v, %v", when, done, err)
			}
			if done.Dozing == 1 {
				return
			}
		}
	}
	// looks prints what a command inherits from the guest, except its name and the lock limit, by which the guest
	// distinguishes commands.
	const looks = `cat /tmp/first; id; umask; pwd; env | grep -v exec_ | sort; ls /proc/self/fd | wc -l
cat /proc/self/cgroup /proc/self/mountinfo /proc/self/oom_score_adj /proc/self/uid_map
grep -v locks /proc/self/limits; grep -E 'NoNewPrivs|Seccomp|Cap|Sig[BI]|Groups|Speculation' /proc/self/status`
	asleep("as it was made")
	Bash(t, s, "echo kept >/tmp/first")
	before := Bash(t, s, looks).Stdout
	if !strings.HasPrefix(before, "kept\nuid=1000(user)") {
		t.Fatalf("before: %q", before)
	}
	same := func(when string) {
		t.Helper()
		if got := Bash(t, s, looks).Stdout; got != before {
			t.Errorf("%s:\n%s\nbefore:\n%s", when, got, before)
		}
		if g := s.Info().Generation; g != 1 {
			t.Errorf("%s: generation %d", when, g)
		}
	}

	asleep("after a command")
	if done, err := st.Sessions.Sweep(ctx); err != nil || done.Dozing != 0 || done.Lost != 0 {
		t.Errorf("while it dozes: swept %+v, %v", done, err)
	}
	same("woken by a command")

	asleep("the second time")
	if _, err := s.WriteFile(ctx, proto.UserDefault, "/workspace/f", session.WriteOptions{}, strings.NewReader(
		"x")); err != nil {
		t.Errorf("woken by a file: %v", err)
	}

	asleep("after a file")
	told := c.tellsDoze(t, s.ID())
	st.Reopen(t)
	if done, err := st.Sessions.Sweep(ctx); err != nil || done.Lost != 0 || told && done.Dozing != 0 {
		t.Errorf("the next daemon: swept %+v, %v", done, err)
	}
	if told && !c.rt.Dozes(s.ID()) {
		t.Error("the next daemon woke it")
	}
	var err error
	if s, err = st.Sessions.Get(Owner, s.ID()); err != nil {
		t.Fatal(err)
	}
	same("woken by the next daemon's user")

	e, err := s.Exec(ctx, proto.Cmd{Command: "sleep 1000", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := st.Sessions.Sweep(ctx); err != nil || done.Dozing != 0 {
		t.Errorf("with a command: swept %+v, %v", done, err)
	}
	e.Cancel(proto.EndKilled, "the test says so")
	if _, err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}

	if c.canPause() {
		asleep("before a pause")
		if err := s.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		same("paused while it dozed")
	}
	asleep("before a stop")
	if err := s.Stop(ctx); err != nil || s.Info().State != proto.StateStopped {
		t.Errorf("stopping one that dozes: %s, %v", s.Info().State, err)
	}
	Bash(t, s, "test ! -e /tmp/first")
	asleep("before the end")
}

// tellsDoze waits until the runtime reports that a guest dozes; the guest answers before it dozes. Under gVisor the
// runtime cannot see that from outside.
func (c conformance) tellsDoze(t *testing.T, id string) bool {
	t.Helper()
	if c.class == proto.ClassGVisor {
		return false
	}
	for deadline := time.Now().Add(20 * time.Second); !c.rt.Dozes(id); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the runtime does not see it doze")
		}
	}
	return true
}
