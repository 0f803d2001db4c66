package pid1

import (
	"encoding/binary"
	"encoding/json"

	"golang.org/x/sys/unix"

	"berth/guest/proc"
	"berth/guest/wire"
	"berth/proto"
)

// control handles a frame for the running command. After the command's end it handles only FrameGiveUp and
// FrameDrained. The daemon sent other frames before it knew of the end.
func (k *caller) control(kind wire.FrameKind, body []byte) error {
	e := k.exec
	if e == nil {
		return nil
	}
	if kind == wire.FrameGiveUp {
		k.quit = true
		return nil
	}
	if kind == wire.FrameDrained {
		e.letGo()
		return nil
	}
	if e.ending.Load() {
		return nil
	}
	switch kind {
	case wire.FrameStdin:
		return e.feed.Push(body)
	case wire.FrameEOF:
		e.feed.End()
		return nil
	case wire.FrameSignal:
		return k.acknowledge(body, 2, func(v []uint32) error { return e.signal(unix.Signal(v[1])) })
	case wire.FrameResize:
		return k.acknowledge(body, 3, func(v []uint32) error { return e.resize(v[1], v[2]) })
	case wire.FrameKill:
		v, _, err := wire.DecodeNumbers(body, 1)
		if err != nil {
			return err
		}
		through := e.act()
		k.s.wg.Go(func() {
			defer through()
			k.ack(v[0], e.kill())
		})
		return nil
	}
	return wire.ErrFrame
}

// acknowledge runs the action of a control frame of n numbers and sends the result.
func (k *caller) acknowledge(body []byte, n int, act func([]uint32) error) error {
	v, _, err := wire.DecodeNumbers(body, n)
	if err != nil {
		return err
	}
	defer k.exec.act()()
	k.ack(v[0], act(v))
	return nil
}

// ack answers control number n.
func (k *caller) ack(n uint32, err error) {
	b := binary.BigEndian.AppendUint32(nil, n)
	if err != nil {
		text, jerr := json.Marshal(proto.AsError(err))
		if jerr == nil {
			b = append(b, text...)
		}
	}
	_ = k.conn.Send(wire.FrameAck, b)
}

// signal sends a signal to the command's process group. On a terminal it also signals the foreground process group.
func (e *execution) signal(sig unix.Signal) error {
	if sig < 1 || sig > 64 {
		return proto.Errorf(proto.InvalidArgument, "signal", "", "there is no signal %d", int(sig))
	}
	e.mu.Lock()
	o := e.group
	e.killed = e.killed || sig == unix.SIGKILL
	e.mu.Unlock()
	if o == nil {
		return wire.CommandEnded()
	}
	if o.Shell {
		return e.s.signalShell(o, sig)
	}
	err := e.s.procs.Kill(-o.PID, sig)
	if fg := e.foreground(); fg > 0 && fg != o.PID {
		err = e.s.procs.Kill(-fg, sig)
	}
	if err == unix.ESRCH {
		return wire.CommandEnded()
	}
	return wire.FileError("signal", "the process", err)
}

// signalShell signals what a shell runs. It signals the shell itself only if that runs nothing but its own builtins.
func (s *Server) signalShell(g *proc.Group, sig unix.Signal) error {
	sent := false
	for _, pid := range s.procs.Others(g) {
		sent = s.procs.Kill(pid, sig) == nil || sent
	}
	if sent {
		return nil
	}
	return wire.FileError("signal", "the shell", s.procs.Kill(g.PID, sig))
}

// killAll kills the command without a request of the caller.
func (e *execution) killAll() error {
	defer e.act()()
	return e.kill()
}

// kill ends all processes of the command and returns when they are gone.
func (e *execution) kill() error {
	e.mu.Lock()
	e.killed = true
	g := e.group
	e.mu.Unlock()
	if g == nil {
		return nil
	}
	return e.s.procs.KillTree(g)
}

// act registers an action on the command. The end is sent only after the returned function was called, so that
// acknowledgements come first.
func (e *execution) act() (through func()) {
	c := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.acts = append(e.acts, c)
	return func() { close(c) }
}

// hangUp ends the caller's running command, since the caller can no longer do so. A kept command continues.
func (k *caller) hangUp() {
	e := k.exec
	if e == nil {
		return
	}
	if l := k.link.Load(); l != nil {
		l.stop()
		k.giveUp(l.k)
		return
	}
	close(e.cancel)
	if kp := e.keptAs(); kp != nil { // it has just got its turn on a shell
		k.giveUp(kp)
		return
	}
	if !e.ending.Load() {
		if err := e.killAll(); err != nil {
			k.s.log.Warn("killing the command of a lost connection", "err", err)
			return
		}
		<-e.ended
	}
	e.letGo()
}
