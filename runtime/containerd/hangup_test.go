package containerd

import (
	"fmt"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// TestHearsHangups checks that a process that ignored hangups no longer hands that on to its children once it calls
// hearHangups, and that the process survives a hangup.
func TestHearsHangups(t *testing.T) {
	ignored := func() bool {
		t.Helper()
		out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
		var mask uint64
		if err == nil {
			_, err = fmt.Sscanf(string(out), "SigIgn:\t%x", &mask)
		}
		if err != nil {
			t.Fatal(err)
		}
		return mask&(1<<(syscall.SIGHUP-1)) != 0
	}
	signal.Ignore(syscall.SIGHUP)
	if !ignored() {
		t.Fatal("it is not handed on at all")
	}
	hearHangups()
	if ignored() {
		t.Error("a child ignores hangups")
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
