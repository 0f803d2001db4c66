package native

import (
	"context"
	"net/http"
	"slices"
	"time"

	"berth/proto"
	"berth/session"
)

func (e *edge) createContainer(c *call, req proto.CreateContainer) (made proto.Container, err error) {
	if err := c.readRetryKey(&req.IdempotencyKey); err != nil {
		return made, err
	}
	s, replayed, err := e.Sessions.CreateOnce(c.ctx(), c.owner, req)
	if err != nil {
		return made, err
	}
	if req.Existing {
		made = s.Info()
		if made.Existing = replayed; replayed {
			made.Differences = s.Differences(c.ctx(), req)
			c.status = http.StatusOK
		}
		return made, nil
	}
	c.setReplayed(replayed)
	return s.Info(), nil
}

func (e *edge) listContainers(c *call) (none page[proto.Container], err error) {
	labels, err := c.labels()
	if err != nil {
		return none, err
	}
	data, more, err := e.Sessions.List(c.owner, session.Filter{
		Labels: labels, State: proto.State(c.query.Get("state")), After: c.query.Get("after"),
		Limit: int(c.whole("limit")),
	})
	return listPart(data, more, err, func(i *proto.Container) *string { return &i.ID })
}

func (e *edge) changeContainer(c *call, req proto.ChangeContainer) (now proto.Container, err error) {
	s, err := e.session(c)
	if err != nil {
		return now, err
	}
	return e.Apps.Change(c.ctx(), s, req)
}

func (e *edge) getContainer(_ *call, s *session.Session) (proto.Container, error) {
	return s.Info(), nil
}

// A deleted container and its workspace.
type deletedContainer struct {
	ID            string `json:"id"`
	Deleted       bool   `json:"deleted"` // Always true.
	WorkspaceID   string `json:"workspace_id"`
	WorkspaceKept bool   `json:"workspace_kept"`
}

func (e *edge) deleteContainer(c *call) (done deletedContainer, err error) {
	s, err := e.session(c)
	if s == nil { // an expired one can be deleted too
		return done, err
	}
	if err := e.Sessions.Delete(c.ctx(), c.owner, s.ID(), c.flag("keep_workspace")); err != nil {
		return done, err
	}
	// Asked after the deletion, not repeated from the request: the answer says what became of the workspace.
	kept := slices.ContainsFunc(e.Sessions.Workspaces(c.owner), func(w proto.Workspace) bool {
		return w.ID == s.WorkspaceID()
	})
	return deletedContainer{s.ID(), true, s.WorkspaceID(), kept}, nil
}

// A request for a longer lease. The answer shows the result, since a lease never goes past max_expires_at.
type extension struct {
	// From now on. 0 only renews the idle timeout.
	Seconds int64 `json:"seconds,omitempty" schema:"min=0 max=2592000"`
}

// maxExtension is above every allowed extension and fits a time.Duration.
const maxExtension = 1 << 32

func (e *edge) extendContainer(c *call, req extension) (now proto.Container, err error) {
	s, err := e.session(c)
	if err != nil {
		return now, err
	}
	// Clamp before the conversion to a Duration, which would overflow. The core refuses values out of range.
	return s.Extend(time.Duration(min(max(req.Seconds, -1), maxExtension)) * time.Second)
}

// changeState returns a handler that moves a container to another state and answers with the container.
func changeState(move func(*session.Session, context.Context) error) func(*call, *session.Session) (proto.Container,
	error) {
	return func(c *call, s *session.Session) (proto.Container, error) {
		err := move(s, c.ctx())
		return s.Info(), err
	}
}

// The list has no pages: an owner has about as many workspaces as containers, and they are small.
func (e *edge) listWorkspaces(c *call) (page[proto.Workspace], error) {
	return list(e.Sessions.Workspaces(c.owner), nil)
}

// The answer to a delete.
type deletion struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"` // Always true.
}

func (e *edge) deleteWorkspace(c *call) (deletion, error) {
	return deletion{c.id(), true}, e.Sessions.DeleteWorkspace(c.ctx(), c.owner, c.id())
}
