package output

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ttyBytes bounds the last read of a terminal: the kernel buffers 64 KiB per terminal.
const ttyBytes = 128 << 10

// Pump reads a pipe or terminal until its end, or until Finish is called and the data present at that time is read.
// It holds a buffer only while there is data to read, so that a thousand silent commands need no buffers.
type Pump struct {
	File    *os.File
	raw     syscall.RawConn
	tty     bool
	deliver func([]byte) error
	whole   func(*Buffer) (kept bool) // takes a full buffer instead of deliver; may be nil
	done    chan struct{}
	ended   bool // no writer has it open; valid after done
	full    int  // consecutive reads that found the pipe full
}

// A pipe that is found full this many times in a row is widened to widePipe bytes, so that writer and reader do not
// wait for each other every 64 KiB. Most pipes are never full.
const (
	usualPipe = 64 << 10
	widePipe  = 1 << 20
	fullOften = 4
)

// widen enlarges the pipe if it is often full.
func (p *Pump) widen(read int) {
	if p.full++; read < usualPipe {
		p.full = 0
	}
	if p.full == fullOften {
		// if the kernel refuses, the size stays
		_ = p.raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe) })
	}
}

// StartPump starts a pump. f must be non-blocking and registered with the poller.
func StartPump(f *os.File, tty bool, deliver func([]byte) error, whole func(*Buffer) (kept bool)) (*Pump, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &Pump{File: f, raw: raw, tty: tty, deliver: deliver, whole: whole, done: make(chan struct{})}
	go p.run()
	return p, nil
}

func (p *Pump) run() {
	defer close(p.done)
	for {
		err := p.once()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.ended = p.drain()
			return
		case err != nil:
			p.ended = true
			return
		}
	}
}

// once waits for data and delivers it. It returns io.EOF at the end, and also for a terminal whose other side is
// closed.
func (p *Pump) once() error {
	var buf *Buffer
	var n int
	var rerr error
	err := p.raw.Read(func(fd uintptr) bool {
		buf = NewBuffer()
		n, rerr = readPipe(int(fd), buf.Data())
		if rerr != unix.EAGAIN {
			return true
		}
		buf.Free()
		buf = nil
		return false
	})
	if err != nil {
		return err
	}
	if rerr != nil || n <= 0 {
		buf.Free()
		return io.EOF
	}
	p.widen(n)
	if n == BufferBytes && p.whole != nil {
		if !p.whole(buf) {
			buf.Free()
		}
		return nil
	}
	defer buf.Free()
	return p.deliver(buf.Data()[:n])
}

// drain delivers the data that is there now and reports whether it saw the end. The amount is fixed at the start, so
// that a process that keeps writing cannot make drain run forever.
func (p *Pump) drain() bool {
	buf := NewBuffer()
	defer buf.Free()
	for left := p.buffered(); left > 0; {
		b := buf.Data()
		n, err := p.now(b[:min(left, len(b))])
		if err != nil || n <= 0 {
			return err != unix.EAGAIN
		}
		if p.deliver(b[:n]) != nil {
			return false
		}
		left -= n
	}
	return false
}

// buffered returns how many bytes can be read without waiting.
func (p *Pump) buffered() (n int) {
	if p.tty {
		return ttyBytes // the kernel moves a terminal's bytes only when it is read, so a count would be too low
	}
	_ = p.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// now reads without waiting.
func (p *Pump) now(b []byte) (n int, err error) {
	cerr := p.raw.Control(func(fd uintptr) { n, err = readPipe(int(fd), b) })
	if cerr != nil {
		return 0, cerr
	}
	return n, err
}

// Finish ends the pump after all data that was written before this call is delivered.
func (p *Pump) Finish() {
	_ = p.File.SetReadDeadline(time.Unix(1, 0))
	<-p.done
}

// Discard reads f until the other end is closed everywhere, and closes f. So a process that a command left behind can
// still write, and does not die of SIGPIPE.
func Discard(f *os.File) {
	defer f.Close()
	_ = f.SetReadDeadline(time.Time{})
	p := &Pump{File: f, deliver: func([]byte) error { return nil }}
	var err error
	if p.raw, err = f.SyscallConn(); err != nil {
		return
	}
	for p.once() == nil {
	}
}

func readPipe(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}
