package containerd

import (
	"os"
	"os/signal"
	"syscall"
)

// hearHangups resets the hangup signal to its default for all programs that this process starts. If the signal was
// ignored when the process was started, as by nohup, programs inherit that. Then each guest starts its program a
// second time to undo it, and a container made by a setup program differs from one made by runc. Received hangups are
// dropped, so the process outlives a hangup as before.
func hearHangups() {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}
