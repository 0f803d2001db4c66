package client

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// commandPipes is the daemon's side of a command's pipes.
type commandPipes struct {
	out   [2]*os.File // read ends of stdout and stderr
	stdin *os.File    // write end, or nil
	send  []int       // descriptors for the guest: write and read end of stdout, of stderr, read end of stdin
	close []int       // those of send that the daemon closes after sending
}

// newCommandPipes makes pipes for one command. The guest also gets read ends, so that it can go on reading when the
// daemon stops and a leftover process still writes. These are separate from the daemon's read ends. Otherwise the
// guest could make the daemon's reads block forever.
func newCommandPipes(stdin bool) (*commandPipes, error) {
	p := &commandPipes{}
	err := p.open(stdin)
	if err != nil {
		p.drop()
		return nil, err
	}
	return p, nil
}

func (p *commandPipes) open(stdin bool) error {
	for i := range p.out {
		r, w, err := wire.Pipe()
		if err != nil {
			return err
		}
		p.give(w)
		if p.out[i], err = wire.Pollable(r, "output"); err != nil {
			return err
		}
		r, err = unix.Open("/proc/self/fd/"+strconv.Itoa(r), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		p.give(r)
	}
	if !stdin {
		return nil
	}
	r, w, err := wire.Pipe()
	if err != nil {
		return err
	}
	p.give(r)
	p.stdin, err = wire.Pollable(w, "stdin")
	return err
}

// give adds a descriptor for the guest.
func (p *commandPipes) give(fd int) { p.send, p.close = append(p.send, fd), append(p.close, fd) }

// sent closes the descriptors that only the guest needs.
func (p *commandPipes) sent() {
	for _, fd := range p.close {
		_ = unix.Close(fd)
	}
	p.close = nil
}

// drop closes everything. It does nothing if p is nil.
func (p *commandPipes) drop() {
	if p == nil {
		return
	}
	p.sent()
	for _, f := range append(p.out[:], p.stdin) {
		if f != nil {
			_ = f.Close()
		}
	}
}
