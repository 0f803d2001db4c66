package native

import (
	"context"
	"net/http"
	"time"

	"berth/api"
	"berth/proto"
	"berth/tools/toolstore"
)

// runBody bounds the body of a run's request, in bytes: an input and its envelope.
const runBody = toolstore.MaxInput + 64<<10

// One page of a list.
type toolRunPage struct {
	Data    []toolstore.Run `json:"data"`
	HasMore bool            `json:"has_more"`
	// Value of after for the next page; null on the last one.
	NextAfter *string `json:"next_after"`
}

func (e *edge) createTool(c *call) error {
	var req toolstore.NewTool
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	api.Note(c.r.Context(), shortened(req.Name))
	made, err := e.Tools.Create(c.r.Context(), c.owner, req)
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), made.ID)
	return c.json(http.StatusCreated, made)
}

func (e *edge) listTools(c *call) error {
	all, err := e.Tools.List(c.owner)
	if err != nil {
		return err
	}
	return list(c, all)
}

func (e *edge) getTool(c *call) error {
	one, err := e.Tools.Get(c.owner, c.r.PathValue("name"), c.whole("version"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, one)
}

func (e *edge) changeTool(c *call) error {
	var req toolstore.ChangeTool
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	now, err := e.Tools.Change(c.r.Context(), c.owner, c.r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, now)
}

func (e *edge) deleteTool(c *call) error {
	id, err := e.Tools.Delete(c.r.Context(), c.owner, c.r.PathValue("name"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, deletion{id, true})
}

func (e *edge) toolVersions(c *call) error {
	all, err := e.Tools.Versions(c.owner, c.r.PathValue("name"))
	if err != nil {
		return err
	}
	return list(c, all)
}

func (e *edge) runTool(c *call) error {
	var req toolstore.RunRequest
	if err := c.decodeOptional(&req); err != nil {
		return err
	}
	if err := c.readRetryKey(&req.IdempotencyKey); err != nil {
		return err
	}
	run, replayed, err := e.Tools.Run(c.r.Context(), c.owner, c.r.PathValue("name"), req)
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), run.ID)
	c.setReplayed(replayed)
	status := http.StatusOK
	if !run.State.Over() {
		status = http.StatusAccepted
	}
	return c.json(status, run)
}

func (e *edge) listToolRuns(c *call) error {
	data, more, err := e.Tools.Runs(c.owner, toolstore.Filter{
		Tool: c.query.Get("tool"), State: proto.ToolRunState(c.query.Get("state")), After: c.query.Get("after"),
		Limit: int(c.whole("limit")),
	})
	if err != nil {
		return err
	}
	p := toolRunPage{Data: data, HasMore: more}
	if data == nil {
		p.Data = []toolstore.Run{}
	}
	if more {
		p.NextAfter = &data[len(data)-1].ID
	}
	return c.json(http.StatusOK, p)
}

func (e *edge) getToolRun(c *call) error {
	ctx, cancel := untilDrain(c.r.Context())
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, time.Duration(c.whole("wait_seconds"))*time.Second)
	defer stop()
	run, err := e.Tools.Await(ctx, c.owner, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, run)
}

func (e *edge) approveToolRun(c *call) error {
	run, err := e.Tools.Approve(c.r.Context(), c.owner, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), run.Tool)
	return c.json(http.StatusAccepted, run)
}

func (e *edge) refuseToolRun(c *call) error {
	var req toolstore.Refusal
	if err := c.decodeOptional(&req); err != nil {
		return err
	}
	run, err := e.Tools.Refuse(c.r.Context(), c.owner, c.r.PathValue("id"), req)
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), run.Tool)
	return c.json(http.StatusOK, run)
}
