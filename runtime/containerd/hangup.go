package containerd

import (
	"os"
	"os/signal"
	"syscall"
)

// hearHangups has what this process starts find the signal of a hangup at its default. Where it was ignored when the
// process was started, as by nohup, that is handed on: each guest starts its program a second time to undo it, and a
// container that is made by a script has what one of runc's has not. What is heard is dropped, so that the process
// outlives a hangup as before.
func hearHangups() {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}
