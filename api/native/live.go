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

// The most that one websocket follows at a time. The next one is refused, or, if it is one that others
// run, waits for its turn: without a bound a client that reads nothing could pile them up.
const (
	maxFollowed = 128 // commands it began or attached to
	maxWatched  = 128 // commands of others
)

// A live is one websocket. Its handler is the reader; each command that is followed has a goroutine,
// which blocks in Send while the client is slow. Nothing is queued but standard input, which has a bound.
type liveSocket struct {
	s          *session.Session
	admit      func() error // counts a command against the rate of requests
	sock       *api.Socket
	log        *slog.Logger
	ctx        context.Context // ends with the socket
	wg         sync.WaitGroup  // everything that works for this socket
	slots      chan struct{}   // a place of maxFollowed for each that is followed
	watchSlots chan struct{}   // a place of maxWatched for each that is watched

	mu        sync.Mutex // guards what follows
	watching  bool
	following map[string]bool            // execs that are being followed
	own       map[string]bool            // execs begun here that the watcher has yet to come by
	starting  map[chan struct{}]struct{} // execs begun here that have no ID yet; closed when they have
	queues    map[queueKey]*queue
}

func (e *edge) live(c *call) error {
	s, err := e.session(c)
	if err != nil {
		return err
	}
	// Behind this point there is no HTTP answer any more; errors are events.
	sock, err := api.Upgrade(c.w, c.r, e.Socket)
	if err != nil {
		return err
	}
	// The ID and not the key itself is kept: admit looks at its quota as it is when the command
	// comes.
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

// serve reads messages until the socket ends, and returns when everything that worked for it has.
func (l *liveSocket) serve(watch bool) {
	ref := l.s.Ref()
	// First of all events, so that a client knows which container it is connected to.
	l.send(proto.Event{Type: proto.EventReady, Container: &ref})
	if watch {
		l.watch()
	}
	for {
		// Only this goroutine reads. What takes long is handed on, so that a signal is never stuck
		// behind input that is not read.
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
	// Closing ends the context, which frees the followers that Wait is for.
	l.sock.Close(websocket.CloseNormalClosure, "")
	l.wg.Wait()
}

// handle does what needs no waiting and hands on what does.
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

// send gives an event to the client. An error ends the socket, so nobody needs it but followers.
func (l *liveSocket) send(ev proto.Event) error { return l.sock.Send(ev) }

// sendError answers a message that could not be done. The connection stays.
func (l *liveSocket) sendError(m message, err error) {
	// Errors pass through here and not through the HTTP server, so secrets are taken out here.
	err = l.s.HideError(err)
	if proto.CodeOf(err) == proto.Internal {
		l.log.Error("a message on a live connection failed", "type", m.Type, "error", err)
	}
	_ = l.send(proto.Event{Type: proto.EventError, Ref: m.Ref, ExecID: shortened(m.ExecID), Error: proto.AsError(err)})
}

// takeSlot takes a place among those followed, or refuses.
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
	// One connection can begin any number of commands; without this it would be a way around the
	// rate of requests.
	if err := l.admit(); err != nil {
		return err
	}
	if err := l.takeSlot(); err != nil {
		return err
	}
	// Known as starting before the core is asked: a watcher may see the exec before its ID has
	// come back here.
	begun := make(chan struct{})
	l.mu.Lock()
	l.starting[begun] = struct{}{}
	l.mu.Unlock()
	l.wg.Go(func() {
		defer func() { <-l.slots }()
		x, err := l.s.Exec(l.ctx, *m.Cmd)
		if follows := l.started(begun, x); err == nil && follows { // an idempotency key may name what it began before
			err = alreadyFollowed(x)
		}
		if err != nil {
			l.sendError(m, err)
			return
		}
		// A foreground command belongs to the connection that began it.
		if err := l.follow(x, session.Cursor{}, m); err != nil {
			abandonExec(l.ctx, x)
		}
	})
	return nil
}

// started notes which exec a message began, nil if none, for the watcher to leave alone. True means that it is
// followed already.
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

// alreadyFollowed refuses to send what an exec does twice: nobody could tell the one from the other.
func alreadyFollowed(x *session.Exec) error {
	return proto.Errorf(proto.Conflict, "", x.ID(), "this connection follows exec %s already", x.ID())
}

// Each way out before the goroutine gives its slot back.
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

// startFollowing makes sure that an exec is followed once.
func (l *liveSocket) startFollowing(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.following[id] {
		return false
	}
	l.following[id] = true
	return true
}

// follow sends what an exec does, as the message asked for it; its ID was claimed. The first event has the
// message's ref.
func (l *liveSocket) follow(x *session.Exec, from session.Cursor, m message) error {
	leave := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.following, x.ID())
	})
	defer leave()
	event := func(ev proto.Event) error {
		if ev.Type == proto.EventExit { // who has read it may follow the command again
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

// watch begins to follow what others run in the container: what runs now, from its beginning, and
// whatever begins from now on.
// A second call does nothing: the message and the query key may both ask for it.
func (l *liveSocket) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watching {
		return
	}
	l.watching = true
	for id := range l.following {
		l.own[id] = true // it may end, and no longer be among those followed, before the watcher comes by
	}
	l.wg.Go(l.watchAll)
}

// It ends with the socket, whose context NextExecs waits on. Commands that ended before are left
// out: their logs can be asked for.
func (l *liveSocket) watchAll() {
	seen, first := 0, true
	for {
		fresh, n, err := l.s.NextExecs(l.ctx, seen)
		if err != nil || !l.awaitStarting() {
			return
		}
		for _, x := range fresh {
			if first && x.Info().State == proto.ExecEnded {
				continue // before this watch
			}
			if !l.watchOne(x) {
				return
			}
		}
		seen, first = n, false
	}
}

// awaitStarting waits until every exec that this socket was about to begin has an ID, so that it can be told
// from those of others.
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

// watchOne follows an exec of somebody else, when there is a place for it. False: the socket has ended.
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
