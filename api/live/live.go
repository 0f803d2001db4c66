// Package live serves the websocket of one container. A client starts commands on it, attaches to others, writes to
// their standard input, sends signals, and watches what other clients run.
//
// In: the messages, the followers of commands, the queues for input. Out: the websocket itself and the authentication,
// which are package api's, and the commands, which are package session's. Package native calls Serve.
package live

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

// A Config is what a websocket serves.
type Config struct {
	Session *session.Session
	Socket  *api.Socket
	Admit   func() error // counts a command against the rate limit of the client's key
	Watch   bool         // also follow the commands of other clients
	Log     *slog.Logger
}

// A connection is one websocket. Its handler is the reader. Each followed command has a goroutine, which blocks in
// Send while the client is slow. Only standard input is queued, with a bound.
type connection struct {
	Config
	ctx        context.Context // ends with the socket
	wg         sync.WaitGroup  // all goroutines of this socket
	slots      chan struct{}   // holds one token for each followed command, up to maxFollowed
	watchSlots chan struct{}   // holds one token for each watched command, up to maxWatched

	mu        sync.Mutex // guards the fields below
	watching  bool
	following map[string]context.CancelFunc // followed execs; ends the following
	own       map[string]bool               // execs started here that the watcher has not seen yet
	starting  map[chan struct{}]struct{}    // execs started here without an ID yet; closed when they have one
	queues    map[queueKey]*queue
}

// Serve reads messages until the websocket ends, and returns when all goroutines of the connection have.
func Serve(cfg Config) {
	l := &connection{
		Config: cfg, ctx: cfg.Socket.Context(),
		slots: make(chan struct{}, maxFollowed), watchSlots: make(chan struct{}, maxWatched),
		following: map[string]context.CancelFunc{}, own: map[string]bool{}, starting: map[chan struct{}]struct{}{},
		queues: map[queueKey]*queue{},
	}
	ref := l.Session.Ref()
	// The first event tells the client its container.
	l.send(proto.Event{Type: proto.EventReady, Container: &ref})
	if l.Watch {
		l.watch()
	}
	for {
		// Only this goroutine reads. Slow work goes to other goroutines, so that a signal never waits behind unread
		// input.
		data, err := l.Socket.Read()
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
	l.Socket.Close(websocket.CloseNormalClosure, "")
	l.wg.Wait()
}

// handle processes a message at once or passes it to a queue.
func (l *connection) handle(m Message) error {
	switch m.Type {
	case TypeExec:
		return l.exec(m)
	case TypeWatch:
		l.watch()
		return nil
	}
	x, err := l.Session.FindExec(m.ExecID)
	if err != nil {
		return err
	}
	m.ExecID = x.ID() // it may be a process ID
	switch m.Type {
	case TypeAttach:
		return l.attach(m, x)
	case TypeDetach:
		return l.detach(m, x)
	case TypeStdin:
		return l.enqueue(queueKey{m.ExecID, true}, m, func() error { return l.stdin(x, m) })
	case TypeSignal:
		return l.enqueue(queueKey{m.ExecID, false}, m, func() error { return x.Signal(l.ctx, m.Signal) })
	}
	return l.enqueue(queueKey{m.ExecID, false}, m, func() error {
		return x.Resize(l.ctx, proto.WindowSize{Rows: m.Rows, Cols: m.Cols})
	})
}

func (l *connection) stdin(x *session.Exec, m Message) error {
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
func (l *connection) send(ev proto.Event) error { return l.Socket.Send(ev) }

// sendError answers a message that failed. The connection stays open.
func (l *connection) sendError(m Message, err error) {
	// These errors do not pass the HTTP server, so secrets are replaced here.
	err = l.Session.HideError(err)
	if proto.CodeOf(err) == proto.Internal {
		l.Log.Error("a message on a live connection failed", "type", m.Type, "error", err)
	}
	_ = l.send(proto.Event{Type: proto.EventError, Ref: m.Ref, ExecID: api.Shortened(m.ExecID),
		Error: proto.AsError(err)})
}

// takeSlot takes a token of a followed command, or fails.
func (l *connection) takeSlot() error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
		return proto.Errorf(proto.TooMany, "", "", "this connection follows %d commands, which is its limit; wait "+
			"for one to end or open another connection", maxFollowed)
	}
}

// exec starts a command and follows it.
func (l *connection) exec(m Message) error {
	// Without this, one connection could start any number of commands past the rate limit.
	if err := l.Admit(); err != nil {
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
		ctx, cancel := context.WithCancel(l.ctx)
		defer cancel()
		x, err := l.Session.Exec(l.ctx, *m.Cmd)
		// an idempotency key may name an earlier command
		if follows := l.started(begun, x, cancel); err == nil && follows {
			err = alreadyFollowed(x)
		}
		if err != nil {
			l.sendError(m, err)
			return
		}
		// A foreground command belongs to the connection that started it.
		if err := l.follow(ctx, x, session.Cursor{}, m); err != nil {
			Abandon(l.ctx, x)
		}
	})
	return nil
}

// started records which exec a message started, nil if none, so that the watcher skips it. It returns true if the
// exec is already followed.
func (l *connection) started(begun chan struct{}, x *session.Exec, cancel context.CancelFunc) (follows bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting, begun)
	close(begun)
	if x != nil {
		if follows = l.following[x.ID()] != nil; !follows {
			l.following[x.ID()] = cancel
		}
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
func (l *connection) attach(m Message, x *session.Exec) error {
	if err := l.takeSlot(); err != nil {
		return err
	}
	from := session.Cursor{Stdout: m.StdoutOffset, Stderr: m.StderrOffset}
	if m.TailBytes > 0 {
		from = x.Tail(m.TailBytes)
	}
	if err := x.CheckCursor(from); err != nil {
		<-l.slots
		return err
	}
	ctx, ok := l.startFollowing(x.ID())
	if !ok {
		<-l.slots
		return alreadyFollowed(x)
	}
	l.wg.Go(func() {
		defer func() { <-l.slots }()
		_ = l.follow(ctx, x, from, m)
	})
	return nil
}

// detach ends the following of a command. A command that belongs to the connection would end with that.
func (l *connection) detach(m Message, x *session.Exec) error {
	l.mu.Lock()
	cancel := l.following[x.ID()]
	l.mu.Unlock()
	switch {
	case cancel == nil:
		return proto.Errorf(proto.Conflict, "", x.ID(), "this connection does not follow exec %s", x.ID())
	case !x.Outlives():
		return proto.Errorf(proto.Conflict, "", x.ID(), "exec %s would end without a client; start commands with "+
			"detach to leave them", x.ID())
	}
	cancel()
	return nil
}

// Abandon ends a command whose client has gone, unless the command is to outlive it. At shutdown the daemon has gone,
// not the client, and the core records that.
func Abandon(ctx context.Context, x *session.Exec) {
	if !x.Outlives() && !api.IsDraining(ctx) {
		x.Abandon(ctx)
	}
}

// startFollowing marks an exec as followed. It returns false if it already is. ctx ends with the connection, or when
// the client detaches.
func (l *connection) startFollowing(id string) (ctx context.Context, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.following[id] != nil {
		return nil, false
	}
	ctx, l.following[id] = context.WithCancel(l.ctx)
	return ctx, true
}

// follow sends the events of an exec that startFollowing has marked, until ctx ends. The first event has the ref of the
// message. After a detach the last event says so.
func (l *connection) follow(ctx context.Context, x *session.Exec, from session.Cursor, m Message) error {
	leave := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.following[x.ID()]()
		delete(l.following, x.ID())
	})
	ended := false
	defer func() {
		detached := !ended && ctx.Err() != nil && l.ctx.Err() == nil
		leave()
		if detached {
			_ = l.send(proto.Event{Type: proto.EventDetached, ExecID: x.ID()})
		}
	}()
	event := func(ev proto.Event) error {
		if ev.Type == proto.EventExit { // after this event the client may follow the command again
			ended = true
			leave()
		}
		ev.Ref, m.Ref = m.Ref, ""
		return l.send(ev)
	}
	if !m.Binary {
		return x.Follow(ctx, from, event)
	}
	return x.FollowRaw(ctx, from, event, func(_ session.Piece, message []byte) error {
		return l.Socket.SendBinary(message)
	})
}

// watch starts to follow what others run in the container: running commands from their beginning, and later ones. A
// second call does nothing, since the message and the query key may both ask for it.
func (l *connection) watch() {
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
func (l *connection) watchAll() {
	seen, first := 0, true
	for {
		fresh, n, err := l.Session.NextExecs(l.ctx, seen)
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
func (l *connection) awaitStarting() bool {
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
func (l *connection) watchOne(x *session.Exec) bool {
	l.mu.Lock()
	own := l.own[x.ID()]
	delete(l.own, x.ID())
	l.mu.Unlock()
	if own {
		return true
	}
	ctx, ok := l.startFollowing(x.ID())
	if !ok {
		return true
	}
	select {
	case l.watchSlots <- struct{}{}:
	case <-l.ctx.Done():
		return false
	}
	l.wg.Go(func() {
		defer func() { <-l.watchSlots }()
		_ = l.follow(ctx, x, session.Cursor{}, Message{})
	})
	return true
}
