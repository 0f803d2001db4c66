package pid1

import (
	"os"
	"sync"

	"berth/guest/wire"
)

// A feeder passes stdin that comes as frames to the command. It holds at most one window, the limit of bytes that the
// daemon may send without credit.
type feeder struct {
	credit func(n uint32, epoch int) // n bytes were passed on; 0: the command no longer reads

	mu      sync.Mutex
	cond    *sync.Cond
	queue   []byte
	epoch   int  // of the current daemon connection
	owed    int  // bytes received and not yet passed on
	stale   int  // how many of the owed bytes came from an earlier daemon, which gets no credit
	broken  bool // the command no longer reads
	eof     bool // the daemon will send no more
	stopped bool // the command has ended
	opened  bool
	file    *os.File
}

func newFeeder(credit func(uint32, int)) *feeder {
	f := &feeder{credit: credit}
	f.cond = sync.NewCond(&f.mu)
	return f
}

// push queues bytes from the daemon. More than the window is an error.
func (f *feeder) push(b []byte) error {
	if f == nil {
		return nil // the command was started without stdin: drop the bytes
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue)+len(b) > wire.StdinWindow+f.stale {
		return wire.ErrFrame
	}
	f.queue = append(f.queue, b...)
	f.owed += len(b)
	f.cond.Signal()
	return nil
}

// fill sets the whole input before the feeder is opened.
func (f *feeder) fill(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue, f.owed, f.stale, f.eof = b, len(b), len(b), true
}

// renew starts a new epoch for another daemon, which does not know which bytes are queued.
func (f *feeder) renew() (epoch int) {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.stale = f.owed
	return f.epoch
}

// deaf reports whether more input would be lost.
func (f *feeder) deaf() bool {
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.eof || f.broken || f.stopped
}

// passed counts n bytes that were passed on. It returns how many of them earn credit.
func (f *feeder) passed(n int) (earned uint32, epoch int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := min(n, f.stale)
	f.owed -= n
	f.stale -= old
	return uint32(n - old), f.epoch
}

// breakOff records that the command no longer reads.
func (f *feeder) breakOff() (epoch int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = true
	return f.epoch
}

// end records that the daemon sends no more.
func (f *feeder) end() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.eof = true
	f.cond.Signal()
}

// open starts to write to file. It calls finish after the last byte.
func (f *feeder) open(file *os.File, finish func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened, f.file = true, file
	go f.run(file, finish)
}

// stop ends the feeder and drops the bytes that are left.
func (f *feeder) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.opened {
		_ = f.file.Close()
	}
	f.cond.Signal()
}

// run writes the queue until the input ends or the feeder is stopped.
func (f *feeder) run(file *os.File, finish func() error) {
	defer file.Close()
	for {
		b := f.take()
		if b == nil {
			_ = finish()
			return
		}
		if _, err := file.Write(b); err != nil {
			f.credit(0, f.breakOff())
			return
		}
		if n, epoch := f.passed(len(b)); n > 0 {
			f.credit(n, epoch)
		}
	}
}

// take waits for bytes to write. It returns nil when no more will come.
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
