package proc

import "runtime"

// A homeThread is the one thread that starts the guest's children. The kernel makes the thread that started a process
// its parent, and lets only that thread trace it. PTRACE_TRACEME makes the parent the tracer, so only the home thread
// can let such a process go on, see release. In berth-guest it is the main thread, which adopts orphans, too.
type homeThread struct {
	jobs chan func()
}

// serve runs fn, and meanwhile makes the calling goroutine's thread the home thread.
func (h *homeThread) serve(fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	for {
		select {
		case job := <-h.jobs:
			job()
		case <-done:
			return
		}
	}
}

// run calls fn on the home thread, and returns when fn has.
func (h *homeThread) run(fn func()) {
	done := make(chan struct{})
	h.jobs <- func() {
		defer close(done)
		fn()
	}
	<-done
}
