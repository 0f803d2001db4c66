package gosched

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// monitorSlack is how late the kernel may wake Go's monitor thread, in nanoseconds. The kernel's default is 50,000.
const monitorSlack = 200_000

// slowMonitor gives Go's monitor thread that timer slack.
func slowMonitor() error {
	tid, err := MonitorThread(os.Getpid())
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), []byte(strconv.Itoa(monitorSlack)), 0)
}

// MonitorThread returns the thread ID of the monitor thread of a Go process: the first thread that the runtime starts.
func MonitorThread(pid int) (int, error) {
	const numbers = 1 << 22 // the kernel's largest thread ID, after which it counts from the start again
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	found, least := 0, numbers
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil || tid == pid {
			continue
		}
		if after := (tid - pid + numbers) % numbers; after < least {
			found, least = tid, after
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("the process has one thread only: %w", unix.ESRCH)
	}
	return found, nil
}
