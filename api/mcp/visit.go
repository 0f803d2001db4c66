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

// ownLifetime is the net under the deletion of a session's own container, which the end of the daemon prevents.
const ownLifetime = 7 * 24 * time.Hour

// A visit is one MCP session: whose it is, and which container it works in.
type mcpSession struct {
	owner   string
	place   place
	session *sdk.ServerSession

	ctx    context.Context // ends with the session; carries who began it
	cancel context.CancelFunc

	turn chan struct{} // holds one token: the right to make the container
	own  string        // ID of the one that was made; "" is none yet. Guarded by turn

	mu    sync.Mutex     // guards over, and that calls does not grow once it is set
	over  bool           // no call begins any more
	calls sync.WaitGroup // under way
}

// startSession begins a visit for a session that is being initialized. From then on its end is waited for.
func (e *Edge) startSession(ss *sdk.ServerSession, wire context.Context, p place) error {
	v := &mcpSession{owner: proto.CallerOf(wire).Owner, place: p, session: ss, turn: make(chan struct{}, 1)}
	v.ctx, v.cancel = context.WithCancel(context.WithoutCancel(wire))
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.sessionLimit(v.owner) // once more: others may have begun meanwhile
	if e.closed {
		err = proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down; try again in a moment")
	}
	if err != nil {
		v.cancel()
		return err
	}
	e.sessions[ss.ID()] = v
	e.ending.Go(func() {
		_ = ss.Wait() // however it ended
		e.sessionGone(v)
	})
	return nil
}

// sessionGone is for sessions that end without a request for it, since nobody used them.
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

// endSession ends a visit: first what runs in its name, then the container that was made for it.
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

// end cancels what runs for a visit, waits for it, and lets nothing new begin.
func (v *mcpSession) end() {
	v.mu.Lock()
	v.over = true
	v.mu.Unlock()
	v.cancel()
	v.calls.Wait()
}

// begin counts a call, until done.
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

// container is the one that a call works in: that which it names, or the session does, or one of the session's own,
// made now if there is none. note is for the client where that one is not the one of the call before.
func (e *Edge) container(ctx context.Context, v *mcpSession, named string) (s *session.Session, note string, err error) {
	if id := cmp.Or(named, v.place.container); id != "" {
		s, err = e.Sessions.Get(v.owner, id)
		return s, "", err
	}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	if v.own != "" {
		s, err = e.Sessions.Get(v.owner, v.own)
		if code := proto.CodeOf(err); code != proto.NotFound && code != proto.Expired {
			return s, "", err
		}
		note = fmt.Sprintf("the session's container %s is gone, with its files; this is a new one", v.own)
	}
	s, err = e.Sessions.Create(ctx, v.owner, proto.CreateContainer{
		Image: v.place.image, Labels: map[string]string{"made-by": "mcp"}, MaxLifetimeSeconds: int64(
			ownLifetime.Seconds()),
	})
	if err != nil {
		return nil, "", err
	}
	v.own = s.ID()
	return s, note, nil
}
