package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// monitorSlack is how late the kernel may wake Go's monitor thread, in nanoseconds. It asks to be woken after 20 µs
// again and again while there is something to do, and does next to nothing then: it finds threads that wait for a
// disk, so that others have their processor meanwhile. With the kernel's own 50 µs it was 6 % of what the daemon
// costs under many clients, and switches that others paid for. See docs/decisions/0048.
const monitorSlack = 200_000

// calmMonitor gives the monitor that slack. It takes the capability CAP_SYS_NICE. Threads that the monitor makes have
// it too, and what those start; a guest's commands have not (guest.Unhurry). A gVisor sandbox, whose guest cannot
// change its own, has what the thread had that started it.
func calmMonitor() error {
	tid, err := monitorThread()
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), []byte(strconv.Itoa(monitorSlack)), 0)
}

// monitorThread is the number of Go's monitor: the thread that a program makes first, before anything of its own runs.
func monitorThread() (int, error) {
	const numbers = 1 << 22 // the kernel's most, after which they begin anew
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	first, found, least := os.Getpid(), 0, numbers
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil || tid == first {
			continue
		}
		if after := (tid - first + numbers) % numbers; after < least {
			found, least = tid, after
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("there is no thread but the first: %w", unix.ESRCH)
	}
	return found, nil
}
