package pid1

import (
	"syscall"
	"testing"
)

// TestLeftovers checks that the processes that a command leaves are counted for that command only.
func TestLeftovers(t *testing.T) {
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
