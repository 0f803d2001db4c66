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
	for i := range p.out {
		r, w, err := wire.Pipe()
		if err != nil {
			p.drop()
			return nil, err
		}
		p.send, p.close = append(p.send, w), append(p.close, w)
		if p.out[i], err = wire.Pollable(r, "output"); err != nil {
			p.drop()
			return nil, err
		}
		if r, err = unix.Open("/proc/self/fd/"+strconv.Itoa(r), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC,
			0); err != nil {
			p.drop()
			return nil, err
		}
		p.send, p.close = append(p.send, r), append(p.close, r)
	}
	if !stdin {
		return p, nil
	}
	r, w, err := wire.Pipe()
	if err != nil {
		p.drop()
		return nil, err
	}
	p.send, p.close = append(p.send, r), append(p.close, r)
	if p.stdin, err = wire.Pollable(w, "stdin"); err != nil {
		p.drop()
	}
	return p, err
}

// prestartedPipes holds pipes for later commands, so that a command need not wait for its own. They are made after
// the end of a command was reported, when no caller waits.
var prestartedPipes = make(chan *commandPipes, 4)

// takePipes is newCommandPipes that returns at once if prestarted pipes are available.
func takePipes(stdin bool) (*commandPipes, error) {
	if stdin {
		return newCommandPipes(true)
	}
	select {
	case p := <-prestartedPipes:
		return p, nil
	default:
		return newCommandPipes(false)
	}
}

// refillPipes makes as many prestarted pipes as there is room for. So an idle daemon always has the same number of
// them.
func refillPipes() {
	for len(prestartedPipes) < cap(prestartedPipes) {
		p, err := newCommandPipes(false)
		if err != nil {
			return // the command that needs pipes will get the error
		}
		select {
		case prestartedPipes <- p:
		default:
			p.drop()
		}
	}
}

// ClosePipes closes the prestarted pipes. It is for tests that count descriptors.
func ClosePipes() {
	for len(prestartedPipes) > 0 {
		(<-prestartedPipes).drop()
	}
}

// sent closes the descriptors that only the guest needs.
func (p *commandPipes) sent() {
	for _, fd := range p.close {
		_ = unix.Close(fd)
	}
	p.close = nil
}

// drop closes everything.
func (p *commandPipes) drop() {
	p.sent()
	for _, f := range append(p.out[:], p.stdin) {
		if f != nil {
			_ = f.Close()
		}
	}
}
