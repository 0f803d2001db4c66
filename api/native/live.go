package native

import (
	"context"
	"log/slog"
	"sync"

	"berth/api"
	"berth/proto"
	"berth/session"

	"github.com/gorilla/websocket"
)

// How many commands one websocket follows at a time, so that a client that reads nothing cannot pile them up. A
// further command of its own is refused; a further command of others waits.
const (
	maxFollowed = 128 // commands that it started or attached to
	maxWatched  = 128 // commands of others
)

// A liveSocket is one websocket. Its handler is the reader. Each followed command has a goroutine, which blocks in
// Send while the client is slow. Only standard input is queued, with a bound.
type liveSocket struct {
	s          *session.Session
	admit      func() error // counts a command against the rate limit
	sock       *api.Socket
	log        *slog.Logger
	ctx        context.Context // ends with the socket
	wg         sync.WaitGroup  // all goroutines of this socket
	slots      chan struct{}   // holds one token for each followed command, up to maxFollowed
	watchSlots chan struct{}   // holds one token for each watched command, up to maxWatched

	mu        sync.Mutex // guards the fields below
	watching  bool
	following map[string]bool            // followed execs
	own       map[string]bool            // execs started here that the watcher has not seen yet
	starting  map[chan struct{}]struct{} // execs started here without an ID yet; closed when they have one
	queues    map[queueKey]*queue
}

func (e *edge) live(c *call) error {
	s, err := e.session(c)
	if err != nil {
		return err
	}
	// From here on there is no HTTP answer; errors are events.
	sock, err := api.Upgrade(c.w, c.r, e.Socket)
	if err != nil {
		return err
	}
	// Keep the ID, not the key: admit looks at the quota at the time of the command.
	key := proto.CallerOf(c.r.Context()).KeyID
	l := newLiveSocket(s, sock, e.Log.With("request_id", api.RequestID(c.r.Context())))
	l.admit = func() error { return e.Keys.Admit(key) }
	l.serve(c.flag("watch"))
	return nil
}

func newLiveSocket(s *session.Session, sock *api.Socket, log *slog.Logger) *liveSocket {
	return &liveSocket{
		s: s, sock: sock, log: log, ctx: sock.Context(),
		slots: make(chan struct{}, maxFollowed), watchSlots: make(chan struct{}, maxWatched),
		following: map[string]bool{}, own: map[string]bool{}, starting: map[chan struct{}]struct{}{},
		queues: map[queueKey]*queue{},
	}
}

// serve reads messages until the socket ends, and returns when all its goroutines have.
func (l *liveSocket) serve(watch bool) {
	ref := l.s.Ref()
	// The first event tells the client its container.
	l.send(proto.Event{Type: proto.EventReady, Container: &ref})
	if watch {
		l.watch()
	}
	for {
		// Only this goroutine reads. Slow work goes to other goroutines, so that a signal never waits behind unread
		// input.
		data, err := l.sock.Read()
		if err != nil {
			break
		}
		m, err := decodeMessage(data)
		if err == nil {
			err = l.handle(m)
		}
		if err != nil {
			l.sendError(m, err)
		}
	}
	// Close ends the context, which ends the followers that Wait waits for.
	l.sock.Close(websocket.CloseNormalClosure, "")
	l.wg.Wait()
}

// handle processes a message at once or passes it to a queue.
func (l *liveSocket) handle(m message) error {
	switch m.Type {
	case msgExec:
		return l.exec(m)
	case msgWatch:
		l.watch()
		return nil
	}
	x, err := l.s.FindExec(m.ExecID)
	if err != nil {
		return err
	}
	switch m.Type {
	case msgAttach:
		return l.attach(m, x)
	case msgStdin:
		return l.enqueue(queueKey{m.ExecID, true}, m, func() error { return l.stdin(x, m) })
	case msgSignal:
		return l.enqueue(queueKey{m.ExecID, false}, m, func() error { return x.Signal(l.ctx, m.Signal) })
	}
	return l.enqueue(queueKey{m.ExecID, false}, m, func() error {
		return x.Resize(l.ctx, proto.WindowSize{Rows: m.Rows, Cols: m.Cols})
	})
}

func (l *liveSocket) stdin(x *session.Exec, m message) error {
	if b := m.input(); len(b) > 0 {
		if err := x.Write(l.ctx, b); err != nil {
			return err
		}
	}
	if m.Close {
		return x.CloseStdin()
	}
	return nil
}

// send sends an event. An error ends the socket, so only followers look at it.
func (l *liveSocket) send(ev proto.Event) error { return l.sock.Send(ev) }

// sendError answers a message that failed. The connection stays open.
func (l *liveSocket) sendError(m message, err error) {
	// These errors do not pass the HTTP server, so secrets are replaced here.
	err = l.s.HideError(err)
	if proto.CodeOf(err) == proto.Internal {
		l.log.Error("a message on a live connection failed", "type", m.Type, "error", err)
	}
	_ = l.send(proto.Event{Type: proto.EventError, Ref: m.Ref, ExecID: shortened(m.ExecID), Error: proto.AsError(err)})
}

// takeSlot takes a token of a followed command, or fails.
func (l *liveSocket) takeSlot() error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
		return proto.Errorf(proto.TooMany, "", "", "this connection follows %d commands, which is its limit; wait "+
			"for one to end or open another connection", maxFollowed)
	}
}

// exec starts a command and follows it.
func (l *liveSocket) exec(m message) error {
	// Without this, one connection could start any number of commands past the rate limit.
	if err := l.admit(); err != nil {
		return err
	}
	if err := l.takeSlot(); err != nil {
		return err
	}
	// Register it before calling the core: a watcher may see the exec before its ID is known here.
	begun := make(chan struct{})
	l.mu.Lock()
	l.starting[begun] = struct{}{}
	l.mu.Unlock()
	l.wg.Go(func() {
		defer func() { <-l.slots }()
		x, err := l.s.Exec(l.ctx, *m.Cmd)
		if follows := l.started(begun, x); err == nil && follows { // an idempotency key may name an earlier command
			err = alreadyFollowed(x)
		}
		if err != nil {
			l.sendError(m, err)
			return
		}
		// A foreground command belongs to the connection that started it.
		if err := l.follow(x, session.Cursor{}, m); err != nil {
			abandonExec(l.ctx, x)
		}
	})
	return nil
}

// started records which exec a message started, nil if none, so that the watcher skips it. It returns true if the
// exec is already followed.
func (l *liveSocket) started(begun chan struct{}, x *session.Exec) (follows bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting, begun)
	close(begun)
	if x != nil {
		follows = l.following[x.ID()]
		l.following[x.ID()] = true
		if l.watching {
			l.own[x.ID()] = true
		}
	}
	return follows
}

// alreadyFollowed refuses to send the events of an exec twice: a client could not tell them apart.
func alreadyFollowed(x *session.Exec) error {
	return proto.Errorf(proto.Conflict, "", x.ID(), "this connection follows exec %s already", x.ID())
}

// Each return before the goroutine starts gives the slot back.
func (l *liveSocket) attach(m message, x *session.Exec) error {
	if err := l.takeSlot(); err != nil {
		return err
	}
	from := session.Cursor{Stdout: m.StdoutOffset, Stderr: m.StderrOffset}
	if err := x.CheckCursor(from); err != nil {
		<-l.slots
		return err
	}
	if !l.startFollowing(x.ID()) {
		<-l.slots
		return alreadyFollowed(x)
	}
	l.wg.Go(func() {
		defer func() { <-l.slots }()
		_ = l.follow(x, from, m)
	})
	return nil
}

// startFollowing marks an exec as followed. It returns false if it already is.
func (l *liveSocket) startFollowing(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.following[id] {
		return false
	}
	l.following[id] = true
	return true
}

// follow sends the events of an exec that startFollowing has marked. The first event has the ref of the message.
func (l *liveSocket) follow(x *session.Exec, from session.Cursor, m message) error {
	leave := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.following, x.ID())
	})
	defer leave()
	event := func(ev proto.Event) error {
		if ev.Type == proto.EventExit { // after this event the client may follow the command again
			leave()
		}
		ev.Ref, m.Ref = m.Ref, ""
		return l.send(ev)
	}
	if !m.Binary {
		return x.Follow(l.ctx, from, event)
	}
	return x.FollowRaw(l.ctx, from, event, func(_ session.Piece, message []byte) error {
		return l.sock.SendBinary(
			message)
	})
}

// watch starts to follow what others run in the container: running commands from their beginning, and later ones. A
// second call does nothing, since the message and the query key may both ask for it.
func (l *liveSocket) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watching {
		return
	}
	l.watching = true
	for id := range l.following {
		l.own[id] = true // it may end before the watcher sees it
	}
	l.wg.Go(l.watchAll)
}

// watchAll runs until the socket ends, whose context NextExecs observes. It skips commands that ended earlier: their
// logs can be read.
func (l *liveSocket) watchAll() {
	seen, first := 0, true
	for {
		fresh, n, err := l.s.NextExecs(l.ctx, seen)
		if err != nil || !l.awaitStarting() {
			return
		}
		for _, x := range fresh {
			if first && x.Info().State == proto.ExecEnded {
				continue // ended before the watch
			}
			if !l.watchOne(x) {
				return
			}
		}
		seen, first = n, false
	}
}

// awaitStarting waits until every exec that this socket is starting has an ID, so that the watcher knows it.
func (l *liveSocket) awaitStarting() bool {
	l.mu.Lock()
	var pending []chan struct{}
	for begun := range l.starting {
		pending = append(pending, begun)
	}
	l.mu.Unlock()
	for _, begun := range pending {
		select {
		case <-begun:
		case <-l.ctx.Done():
			return false
		}
	}
	return true
}

// watchOne follows an exec of another client as soon as a token is free. It returns false if the socket has ended.
func (l *liveSocket) watchOne(x *session.Exec) bool {
	l.mu.Lock()
	own := l.own[x.ID()]
	delete(l.own, x.ID())
	l.mu.Unlock()
	if own || !l.startFollowing(x.ID()) {
		return true
	}
	select {
	case l.watchSlots <- struct{}{}:
	case <-l.ctx.Done():
		return false
	}
	l.wg.Go(func() {
		defer func() { <-l.watchSlots }()
		_ = l.follow(x, session.Cursor{}, message{})
	})
	return true
}
