package session

import (
	"context"
	"net"
	"time"

	"berth/guest/wire"
	"berth/session/handshake"
)

// Handshake asks the guest at the other end of conn who it is, and returns the connection to keep; see package
// handshake. A Runtime with pooled sandboxes calls it.
func Handshake(ctx context.Context, conn net.Conn) (net.Conn, error) { return handshake.Do(ctx, conn) }

// identifyGuest does the handshake with a guest that was just started.
func (s *Session) identifyGuest(ctx context.Context) (wire.Hello, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return wire.Hello{}, err
	}
	if c, ok := conn.(*handshake.Conn); ok {
		s.Guest().TakeOver(c.Client)
		return c.Hello, nil
	}
	_ = conn.Close() // the client dials itself
	return s.Guest().Hello(ctx)
}

const (
	handshakeParallel = 2 // guests that HandshakeAll connects to at a time
	// delay of HandshakeAll after startup: clients that waited for the daemon go first
	handshakeDelay = 500 * time.Millisecond
)

// HandshakeAll reconnects to the guests of the sessions that Open took over, in the background, and begins to act on
// absolute leases on time. The caller calls it once it serves requests; a request for a session does its handshake at
// once.
func (ss *Sessions) HandshakeAll() {
	ss.alarm.Start()
	list := ss.takenOver
	ss.takenOver = nil
	next := make(chan *Session, len(list))
	for _, s := range list {
		next <- s
	}
	close(next)
	for range min(handshakeParallel, len(list)) {
		ss.wg.Go(func() {
			select {
			case <-time.After(handshakeDelay):
			case <-ss.ctx.Done():
			}
			for s := range next {
				if ss.ctx.Err() != nil || s.is(&s.leaseRenewed) {
					continue
				}
				if unlock, free := s.tryLockTransition(); free {
					s.handshakeIfAwake()
					unlock()
				}
			}
		})
	}
}

// awaitHandshake returns after the handshake with the guest of a session that was taken over. A paused session does
// its handshake when it is resumed.
func (s *Session) awaitHandshake() {
	if !s.needsHandshake.Load() {
		return
	}
	if unlock, err := s.lockTransition(s.core.ctx); err == nil { // does the handshake
		unlock()
	}
}

// handshakeIfAwake does the handshake if it is due and the session is not paused. Called with transition held.
func (s *Session) handshakeIfAwake() {
	if s.needsHandshake.Load() && !s.is(&s.paused) {
		s.handshake()
	}
}

// handshake adopts the execs of an earlier daemon, or finds that the sandbox is gone. Called with transition held. If
// this daemon closes meanwhile, the next one does the handshake.
func (s *Session) handshake() {
	ctx := s.core.ctx
	hello, err := s.helloWithRetry(ctx)
	s.mu.Lock()
	if err == nil && !s.leaseRenewed {
		s.touch()
	}
	s.mu.Unlock()
	if err == nil {
		err = s.adoptExecs(ctx, hello)
	}
	if err == nil {
		s.restorePorts(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	defer s.needsHandshake.Store(false) // last: a goroutine that sees false does not wait
	if err == nil {
		return
	}
	s.core.cfg.Log.Warn("a container does not answer; its next use starts it again", "container", s.id, "error", err)
	s.endUnattached()
	// Recorded first: once needsHandshake is reset, readers believe a record that says it runs.
	if err = s.recordEndedMeanwhile(ctx); err == nil {
		err = s.stopSandbox(ctx)
	}
	if err != nil {
		s.core.cfg.Log.Error("stopping a container that does not answer; a sweep will try again", "container", s.id,
			"error", err)
	}
}

// helloWithRetry says hello to the session's guest. It asks a slow guest as often as sweeps would.
func (s *Session) helloWithRetry(ctx context.Context) (hello wire.Hello, err error) {
	for range maxMissedHellos {
		if hello, err = s.hello(ctx); !timedOut(err) || ctx.Err() != nil {
			break
		}
	}
	return hello, err
}

func (s *Session) hello(ctx context.Context) (wire.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	return s.Guest().Hello(ctx)
}
