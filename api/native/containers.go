package native

import (
	"context"
	"net/http"
	"time"

	"berth/proto"
	"berth/session"
)

// One page of a list.
type containerPage struct {
	Data    []proto.Container `json:"data"`
	HasMore bool              `json:"has_more"`
	// Value of after for the next page; null on the last one.
	NextAfter *string `json:"next_after"`
}

func (e *edge) createContainer(c *call) error {
	var req proto.CreateContainer
	if err := c.decodeOptional(&req); err != nil {
		return err
	}
	if err := c.readRetryKey(&req.IdempotencyKey); err != nil {
		return err
	}
	s, replayed, err := e.Sessions.CreateOnce(c.r.Context(), c.owner, req)
	if err != nil {
		return err
	}
	c.setReplayed(replayed)
	return c.json(http.StatusCreated, s.Info())
}

func (e *edge) listContainers(c *call) error {
	labels, err := c.labels()
	if err != nil {
		return err
	}
	data, more, err := e.Sessions.List(c.owner, session.Filter{
		Labels: labels, State: proto.State(c.query.Get("state")), After: c.query.Get("after"),
		Limit: int(c.whole("limit")),
	})
	if err != nil {
		return err
	}
	p := containerPage{Data: data, HasMore: more}
	if more {
		// Pages continue at an ID, not at a number, so that new containers do not shift them.
		p.NextAfter = &data[len(data)-1].ID
	}
	return c.json(http.StatusOK, p)
}

func (e *edge) getContainer(c *call, s *session.Session) error {
	return c.json(http.StatusOK, s.Info())
}

// A deleted container and its workspace.
type deletedContainer struct {
	ID            string `json:"id"`
	Deleted       bool   `json:"deleted"` // Always true.
	WorkspaceID   string `json:"workspace_id"`
	WorkspaceKept bool   `json:"workspace_kept"`
}

func (e *edge) deleteContainer(c *call) error {
	s, err := e.session(c)
	if s == nil { // an expired one can be deleted too
		return err
	}
	if err := e.Sessions.Delete(c.r.Context(), c.owner, s.ID(), c.flag("keep_workspace")); err != nil {
		return err
	}
	// Asked after the deletion, not repeated from the request: the answer says what became of the workspace.
	return c.json(http.StatusOK, deletedContainer{s.ID(), true, s.WorkspaceID(),
		e.hasWorkspace(c.owner, s.WorkspaceID())})
}

func (e *edge) hasWorkspace(owner, id string) bool {
	for _, w := range e.Sessions.Workspaces(owner) {
		if w.ID == id {
			return true
		}
	}
	return false
}

// A request for a longer lease. The answer shows the result, since a lease never goes past max_expires_at.
type extension struct {
	// From now on. 0 only renews the idle timeout.
	Seconds int64 `json:"seconds,omitempty" schema:"min=0 max=2592000"`
}

// maxExtension is above every allowed extension and fits a time.Duration.
const maxExtension = 1 << 32

func (e *edge) extendContainer(c *call) error {
	var req extension
	if err := c.decodeOptional(&req); err != nil {
		return err
	}
	s, err := e.session(c)
	if err != nil {
		return err
	}
	// Clamp before the conversion to a Duration, which would overflow. The core refuses values out of range.
	info, err := s.Extend(time.Duration(min(max(req.Seconds, -1), maxExtension)) * time.Second)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, info)
}

// changeState returns a handler that moves a container to another state and answers with the container.
func (e *edge) changeState(move func(*session.Session, context.Context) error) func(*call) error {
	return func(c *call) error {
		s, err := e.session(c)
		if err != nil {
			return err
		}
		if err := move(s, c.r.Context()); err != nil {
			return err
		}
		return c.json(http.StatusOK, s.Info())
	}
}

// The list has no pages: an owner has about as many workspaces as containers, and they are small.
func (e *edge) listWorkspaces(c *call) error { return list(c, e.Sessions.Workspaces(c.owner)) }

// The answer to a delete.
type deletion struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"` // Always true.
}

func (e *edge) deleteWorkspace(c *call) error {
	id := c.r.PathValue("id")
	if err := e.Sessions.DeleteWorkspace(c.r.Context(), c.owner, id); err != nil {
		return err
	}
	return c.json(http.StatusOK, deletion{id, true})
}
