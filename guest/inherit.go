package guest

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A kernelAction is struct sigaction as rt_sigaction takes it; all zero is the default action.
type kernelAction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// defaultSignals undoes what the guest was started with ignored, since commands would inherit that
// through it. The Go runtime sets the signals that it handles back in a child; the others, the two that C
// libraries keep for themselves among them, it leaves as they were found.
func defaultSignals() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		var ignored uint64
		if n, _ := fmt.Sscanf(line, "SigIgn:\t%x", &ignored); n != 1 {
			continue
		}
		for sig := range 64 {
			if ignored&(1<<sig) != 0 {
				setDefault(sig + 1)
			}
		}
	}
	return nil
}

// setDefault gives a signal its default action. It fails for those that have no other, which is as well.
func setDefault(sig int) {
	var act kernelAction
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, unsafe.Sizeof(act.mask), 0, 0)
}
