package guest

import (
	"os"
	"sync"
)

// A feeder passes stdin that comes as frames on to the command. It holds no more than
// the window that the daemon may have under way.
type feeder struct {
	credit func(n uint32) // n bytes were passed on; 0: nobody reads any more

	mu      sync.Mutex
	cond    *sync.Cond
	queue   []byte
	eof     bool // the daemon will send no more
	stopped bool // the command is over
	opened  bool
	file    *os.File
}

func newFeeder(credit func(uint32)) *feeder {
	f := &feeder{credit: credit}
	f.cond = sync.NewCond(&f.mu)
	return f
}

// push takes what the daemon sent. More than the window is an error.
func (f *feeder) push(b []byte) error {
	if f == nil {
		return nil // it was started without stdin: dropped
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue)+len(b) > stdinWindow {
		return errFrame
	}
	f.queue = append(f.queue, b...)
	f.cond.Signal()
	return nil
}

// end says that the daemon sends no more.
func (f *feeder) end() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.eof = true
	f.cond.Signal()
}

// open starts to write to file. finish is called after the last byte.
func (f *feeder) open(file *os.File, finish func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened, f.file = true, file
	go f.run(file, finish)
}

// stop ends it, whatever is left.
func (f *feeder) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.opened {
		_ = f.file.Close()
	}
	f.cond.Signal()
}

// run writes the queue until it is over.
func (f *feeder) run(file *os.File, finish func() error) {
	defer file.Close()
	for {
		b := f.take()
		if b == nil {
			_ = finish()
			return
		}
		if _, err := file.Write(b); err != nil {
			f.credit(0)
			return
		}
		f.credit(uint32(len(b)))
	}
}

// take waits for something to write; nil when nothing more comes.
func (f *feeder) take() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && !f.eof && !f.stopped {
		f.cond.Wait()
	}
	if f.stopped || len(f.queue) == 0 {
		return nil
	}
	b := f.queue
	f.queue = nil
	return b
}
