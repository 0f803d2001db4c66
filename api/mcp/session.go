package mcp

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"berth/proto"
	"berth/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// ownLifetime removes a session's own container if the end of the daemon prevented its deletion.
const ownLifetime = 7 * 24 * time.Hour

// A peer is who sent a message.
type peer struct {
	owner   string
	place   place
	session *mcpSession // nil: each of its requests stands for itself
}

// An mcpSession is one MCP session: its peer and its container.
type mcpSession struct {
	*peer
	session *sdk.ServerSession

	ctx    context.Context // ends with the session; has the caller who started it
	cancel context.CancelFunc

	turn chan struct{} // holds one token: the right to create the container
	own  string        // ID of the created container; "" is none yet. Guarded by turn

	mu    sync.Mutex     // guards over; once over is set, calls does not grow
	over  bool           // no further call starts
	calls sync.WaitGroup // running calls

	tools changes // of the list of tools, for the client
}

// startSession registers a session that is being initialized, and waits for its end in the background.
func (e *Edge) startSession(ss *sdk.ServerSession, wire context.Context, p place) error {
	v := &mcpSession{peer: &peer{owner: proto.CallerOf(wire).Owner, place: p}, session: ss,
		turn: make(chan struct{}, 1)}
	v.peer.session = v
	v.tools.start(e, v.owner)
	v.ctx, v.cancel = context.WithCancel(context.WithoutCancel(wire))
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.sessionLimit(v.owner) // again: others may have started meanwhile
	if e.closed {
		err = proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down; try again in a moment")
	}
	if err != nil {
		v.cancel()
		return err
	}
	e.sessions[ss.ID()] = v
	e.ending.Go(func() {
		_ = ss.Wait() // for whatever reason
		e.sessionGone(v)
	})
	return nil
}

// sessionGone ends a session that has ended by itself, since it was not used.
func (e *Edge) sessionGone(v *mcpSession) {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		v.end()
		return
	}
	if err := e.endSession(v); err != nil {
		e.Log.Error("deleting the container of an MCP session that ended; a sweep will when its time is over",
			"container", v.own, "error", err)
	}
}

// endSession ends the running calls of a session, then deletes the container that was created for it.
func (e *Edge) endSession(v *mcpSession) error {
	v.end()
	e.mu.Lock()
	if e.sessions[v.session.ID()] == v {
		delete(e.sessions, v.session.ID())
	}
	e.mu.Unlock()
	v.turn <- struct{}{}
	defer func() { <-v.turn }()
	if v.own == "" {
		return nil
	}
	err := e.Sessions.Delete(context.WithoutCancel(v.ctx), v.owner, v.own, false)
	if err == nil || proto.CodeOf(err) == proto.NotFound {
		v.own = ""
		return nil
	}
	return err
}

// end cancels the calls of a session, waits for them, and refuses new ones.
func (v *mcpSession) end() {
	v.mu.Lock()
	v.over = true
	v.mu.Unlock()
	v.cancel()
	v.calls.Wait()
}

// begin counts a call until done.
func (v *mcpSession) begin() (done func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return nil, proto.Errorf(proto.NotFound, "", sessionHeader, "the session has ended; send initialize to "+
			"begin a new one")
	}
	v.calls.Add(1)
	return v.calls.Done, nil
}

// container returns the container of a call: the one that it names, the one of the session, or the session's own,
// which is created now if there is none. note tells the client if that differs from the previous call's container.
func (e *Edge) container(ctx context.Context, who *peer, named string) (s *session.Session, note string, err error) {
	if id := cmp.Or(named, who.place.container); id != "" {
		s, err = e.Sessions.Get(who.owner, id)
		if who.session == nil && isGone(err) {
			return e.createNamed(ctx, who, id, err)
		}
		return s, "", err
	}
	if who.session == nil {
		return nil, "", missing("container", "a name of your choice, such as work; the first call with it creates "+
			"the container")
	}
	v := who.session
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	if v.own != "" {
		s, err = e.Sessions.Get(v.owner, v.own)
		if !isGone(err) {
			return s, "", err
		}
		note = fmt.Sprintf("the session's container %s is gone, with its files; this is a new one", v.own)
	}
	if s, err = e.Sessions.Create(ctx, v.owner, v.place.create()); err != nil {
		return nil, "", err
	}
	v.own = s.ID()
	return s, note, nil
}

// isGone reports whether a container does not exist or has expired.
func isGone(err error) bool {
	code := proto.CodeOf(err)
	return err != nil && (code == proto.NotFound || code == proto.Expired)
}
