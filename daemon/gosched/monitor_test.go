package gosched

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The thread that is taken for Go's monitor is one that sleeps in the kernel's simplest way, as no other of Go's
// does, and it has the slack then.
func TestSlowMonitor(t *testing.T) {
	tid, err := MonitorThread(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	slack := func() string {
		t.Helper()
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	before := slack()
	if err := slowMonitor(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), []byte(before), 0) })
	if got := slack(); got != fmt.Sprint(monitorSlack) || got == before {
		t.Errorf("its slack is %s ns, and was %s", got, before)
	}
	for end := time.Now().Add(10 * time.Second); ; { // it is awake, too, and waits otherwise where nobody else runs
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(b), fmt.Sprintf("%d ", unix.SYS_NANOSLEEP)) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it never sleeps so")
		}
	}
}
