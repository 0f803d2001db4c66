// Package gosched adjusts the daemon's Go runtime to many clients on few processors. Nothing else in the tree works
// around the Go scheduler or the garbage collector. The main program of the daemon calls Tune once.
//
// Two things are done:
//
//   - Go's monitor thread (sysmon) gets a timer slack of 200 µs. It asks the kernel to wake it every 20 µs while any
//     goroutine runs, finds next to nothing to do, and costs context switches that commands pay for. Its only use here
//     is to hand on the processor of a thread that waits for a disk. That then happens up to 200 µs later. With 16
//     clients on two processors this is 9 % more commands per second. With one client there is no difference. It takes
//     CAP_SYS_NICE. Without that capability the thread stays as it is.
//   - The heap gets a floor of 32 MiB. Go collects garbage when the heap has doubled, and the heap of a daemon with few
//     containers has some 8 MiB, so that 130 creates cause one collection, which takes 5 ms of both processors. The
//     floor is an allocation that is never touched, so the kernel gives no memory for it. It allows up to 32 MiB more
//     garbage. A burst of 200 creates takes 15 % less time, and 16 clients run 1 % more commands.
//
// Threads that the monitor thread makes inherit its timer slack, and so do processes that those threads start. The
// guest therefore sets the timer slack of its commands back to the kernel's default. A gVisor sandbox cannot do that.
//
// The environment variable BERTH_GOSCHED=off switches both off.
package gosched

import (
	"log/slog"
	"os"
	"runtime"
)

// heapFloor is how many bytes the heap seems to hold in addition to what it holds.
const heapFloor = 32 << 20

// Tune adjusts the runtime, until the caller calls restore. What cannot be adjusted is logged and left as it is.
func Tune(log *slog.Logger) (restore func()) {
	if os.Getenv("BERTH_GOSCHED") == "off" {
		return func() {}
	}
	if err := slowMonitor(); err != nil {
		log.Debug("leaving the timer slack of Go's monitor thread as it is", "err", err)
	}
	floor := raiseHeap()
	return func() { runtime.KeepAlive(floor) }
}

// raiseHeap gives the heap its floor for as long as the result is alive.
func raiseHeap() []byte { return make([]byte, heapFloor) }
