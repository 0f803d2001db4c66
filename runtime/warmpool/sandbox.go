package warmpool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// ErrEnded means that the guest of a pooled sandbox has ended.
var ErrEnded = errors.New("the guest of a warm container has ended")

// A Sandbox waits for a session. Its holder, the pool or the call that has taken it, is its only owner.
type Sandbox struct {
	Kind
	Name          string
	Limits        proto.Limits
	PID           int // of its first process, on the host
	Isolation     proto.Isolation
	Mounts, Users *os.File // the namespaces in which its workspace is mounted

	mounts  int      // the process from which they were opened
	process *os.File // a pidfd of PID
	seen    time.Time
	shake   Handshake
	asking  sync.Mutex // held during a handshake with the guest
	mu      sync.Mutex // guards conn
	conn    net.Conn   // to its guest, which has answered; the session takes it
}

// open opens what the pool holds of a running sandbox without a session, and waits until the guest answers.
func (p *Pool) open(ctx context.Context, name string, kind Kind, limits proto.Limits) (_ *Sandbox, err error) {
	s := &Sandbox{Kind: kind, Name: name, Limits: limits, shake: p.cfg.Handshake}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	run, err := p.maker.Dial(ctx, name, kind)
	if err != nil {
		return nil, err
	}
	s.PID, s.mounts, s.Isolation, s.conn = run.PID, run.Mounts, run.Isolation, run.Conn
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return nil, fmt.Errorf("watching a warm container: %w", err)
	}
	s.process = os.NewFile(uintptr(fd), "pidfd")
	if s.Mounts, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", s.mounts)); err != nil {
		return nil, err
	}
	if s.Users, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", s.mounts)); err != nil {
		return nil, err
	}
	if err = s.Shake(ctx); err == nil && !s.Alive() { // the files above may belong to another process then
		err = ErrEnded
	}
	return s, err
}

// Alive reports whether its first process runs. The check takes a microsecond.
func (s *Sandbox) Alive() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.process.Fd()), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil
}

// Shake does the handshake with its guest, within handshakeTimeout. Calls wait for each other.
func (s *Sandbox) Shake(ctx context.Context) error {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return ErrEnded
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, err := s.shake(ctx, conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	return err
}

// TakeConn returns the connection to its guest and gives up the ownership; nil if there is none.
func (s *Sandbox) TakeConn() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.conn
	s.conn = nil
	return conn
}

// Close closes the files and the connection that the daemon holds; the sandbox goes on.
func (s *Sandbox) Close() {
	s.closeFiles()
	if conn := s.TakeConn(); conn != nil {
		_ = conn.Close()
	}
}

// closeFiles closes all except the connection to the guest. A file that was never opened is no error.
func (s *Sandbox) closeFiles() {
	for _, f := range []*os.File{s.process, s.Mounts, s.Users} {
		_ = f.Close()
	}
}
