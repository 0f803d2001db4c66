// Package input feeds a command's standard input that arrives as frames. It holds at most one window of bytes, and
// says what may follow. guest/pid1 uses it where the daemon cannot pass a pipe: for terminals, persistent shells, kept
// commands, and connections that carry no descriptors.
package input

import (
	"os"
	"sync"

	"berth/guest/wire"
)

// A Feeder passes stdin that comes as frames to the command. It holds at most one window, the limit of bytes that the
// daemon may send without credit.
type Feeder struct {
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

// New makes a Feeder that reports with credit.
func New(credit func(uint32, int)) *Feeder {
	f := &Feeder{credit: credit}
	f.cond = sync.NewCond(&f.mu)
	return f
}

// Push queues bytes from the daemon. More than the window is an error.
func (f *Feeder) Push(b []byte) error {
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

// Fill sets the whole input before the Feeder is opened.
func (f *Feeder) Fill(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue, f.owed, f.stale, f.eof = b, len(b), len(b), true
}

// Renew starts a new epoch for another daemon, which does not know which bytes are queued.
func (f *Feeder) Renew() (epoch int) {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.stale = f.owed
	return f.epoch
}

// Deaf reports whether more input would be lost.
func (f *Feeder) Deaf() bool {
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.eof || f.broken || f.stopped
}

// passed counts n bytes that were passed on. It returns how many of them earn credit.
func (f *Feeder) passed(n int) (earned uint32, epoch int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := min(n, f.stale)
	f.owed -= n
	f.stale -= old
	return uint32(n - old), f.epoch
}

// breakOff records that the command no longer reads.
func (f *Feeder) breakOff() (epoch int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = true
	return f.epoch
}

// End records that the daemon sends no more.
func (f *Feeder) End() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.eof = true
	f.cond.Signal()
}

// Open starts to write to file. It calls finish after the last byte.
func (f *Feeder) Open(file *os.File, finish func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened, f.file = true, file
	go f.run(file, finish)
}

// Stop ends the Feeder and drops the bytes that are left.
func (f *Feeder) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.opened {
		_ = f.file.Close()
	}
	f.cond.Signal()
}

// run writes the queue until the input ends or the Feeder is stopped.
func (f *Feeder) run(file *os.File, finish func() error) {
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
func (f *Feeder) take() []byte {
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
