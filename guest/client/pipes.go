package client

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// A commandPipes is the daemon's side of a command's pipes.
type commandPipes struct {
	out   [2]*os.File // read ends of stdout and stderr
	stdin *os.File    // write end, or nil
	send  []int       // what the guest gets: write and read end of stdout, of stderr, read end of stdin
	close []int       // which of those are not ours once they are sent
}

// newCommandPipes makes pipes for one command. The guest gets read ends too, so that it can go on reading when we stop
// and a process that was left behind still writes: others than ours, or it could have our reads wait for ever.
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

// prestartedPipes are pipes for commands to come, since a command would have to wait for its own. They are made when
// the end of one has been told and nobody waits.
var prestartedPipes = make(chan *commandPipes, 4)

// takePipes is newPlumbing, at once where there is a spare one.
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

// refillPipes makes as many spare ones as there is room for. So a daemon at rest always has the same number of them,
// whatever went on before.
func refillPipes() {
	for len(prestartedPipes) < cap(prestartedPipes) {
		p, err := newCommandPipes(false)
		if err != nil {
			return // whoever needs it will be told
		}
		select {
		case prestartedPipes <- p:
		default:
			p.drop()
		}
	}
}

// ClosePipes closes the pipes that are made ahead. It is for tests that count descriptors.
func ClosePipes() {
	for len(prestartedPipes) > 0 {
		(<-prestartedPipes).drop()
	}
}

// sent closes what only the guest needs.
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
