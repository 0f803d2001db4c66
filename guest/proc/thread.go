package proc

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads the guest starts before the first program. Go starts a thread when the system call
// of another one takes long, and ends the whole program if the kernel refuses it. So a program that had used up the
// limit of processes could end the guest, and with it the container. The guest has few system calls under way at a
// time, and Go keeps the threads that it has.
const spareThreads = 4

// startThreads starts n threads. A goroutine that waits while it is locked to its thread makes Go start another one.
func startThreads(n int) {
	var all, ended sync.WaitGroup
	all.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	ended.Wait()
}

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
