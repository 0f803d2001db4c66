package pid1

import (
	"os/exec"
	"syscall"
	"testing"
)

// TestLastPID checks that lastPID detects every new process until started or expect is called.
func TestLastPID(t *testing.T) {
	b := newLastPID()
	defer b.close()
	if b.unchanged() {
		t.Error("it says that none was made, and nothing ever settled")
	}
	// The test's own threads have numbers too, and may start at any time.
	eventually(t, "none is made", func() bool {
		b.expect(b.read())
		return b.unchanged()
	})
	cmd := exec.Command("true")
	must(t, cmd.Run())
	if b.unchanged() {
		t.Error("a process was made and has ended, and it says there was none")
	}
	eventually(t, "its number is the next", func() bool {
		b.expect(b.read())
		cmd := exec.Command("true")
		must(t, cmd.Run())
		b.started(cmd.Process.Pid)
		return b.unchanged()
	})
	b.started(1)
	if b.unchanged() {
		t.Error("another was made before the one it is told of, and it says there was none")
	}
}

// TestLeftoversAfterCachedCounters checks that the processes that a command leaves are counted for that command only.
// That must also hold when nothing else has run for long and the guest does not read the process list.
func TestLeftoversAfterCachedCounters(t *testing.T) {
	w := newWorld(t, true)
	for text, n := range map[string]int{
		"/bin/true; (:); echo / | cat":                                          0,
		"sleep 300 >/dev/null 2>&1 &":                                           1,
		"(setsid sleep 300 >/dev/null 2>&1 &)":                                  1,
		"for i in 1 2 3; do setsid sleep 300 >/dev/null 2>&1 & done":            3,
		"exec setsid --wait bash -c 'sleep 300 >/dev/null 2>&1 & exec sleep 0'": 1,
	} {
		w.ahead("")
		for range 3 {
			if r := w.bash("true"); r.Leftover != 0 {
				t.Errorf("before %q: nothing leaves %d behind", text, r.Leftover)
			}
		}
		if r := w.bash(text); r.Leftover != n {
			t.Errorf("%q leaves %d behind, not %d", text, r.Leftover, n)
		}
		if r := w.bash("true"); r.Leftover != 0 {
			t.Errorf("what %q left behind is counted for the next too: %d", text, r.Leftover)
		}
		eventually(t, "they have ended", func() bool { // a process may execute sleep only after the first try
			for _, pid := range w.count("sleep") {
				_ = syscall.Kill(pidOf(pid), syscall.SIGKILL)
			}
			return w.alive("sleep 300") == ""
		})
	}
}
