package native

import (
	"net/http"

	"berth/api"
	"berth/proto"
	"berth/tools/toolstore"
)

// runBody bounds the body of a run's request, in bytes: an input and its envelope.
const runBody = toolstore.MaxInput + 64<<10

func (e *edge) createTool(c *call, req toolstore.NewTool) (made proto.Tool, err error) {
	api.Note(c.ctx(), api.Shortened(req.Name))
	if made, err = e.Tools.Create(c.ctx(), c.owner, req); err == nil {
		api.Note(c.ctx(), made.ID)
	}
	return made, err
}

func (e *edge) listTools(c *call) (page[proto.Tool], error) { return list(e.Tools.List(c.owner)) }

func (e *edge) getTool(c *call) (proto.Tool, error) {
	return e.Tools.Get(c.owner, c.path("name"), c.whole("version"))
}

func (e *edge) changeTool(c *call, req toolstore.ChangeTool) (proto.Tool, error) {
	return e.Tools.Change(c.ctx(), c.owner, c.path("name"), req)
}

func (e *edge) deleteTool(c *call) (deletion, error) {
	id, err := e.Tools.Delete(c.ctx(), c.owner, c.path("name"))
	return deletion{id, true}, err
}

func (e *edge) toolVersions(c *call) (page[proto.Tool], error) {
	return list(e.Tools.Versions(c.owner, c.path("name")))
}

func (e *edge) runTool(c *call, req proto.ToolRunRequest) (any, error) {
	if err := c.readRetryKey(&req.IdempotencyKey); err != nil {
		return nil, err
	}
	run, replayed, err := e.Tools.Run(c.ctx(), c.owner, c.path("name"), req)
	if err != nil {
		return nil, err
	}
	api.Note(c.ctx(), run.ID)
	c.setReplayed(replayed)
	if !run.State.Over() {
		c.status = http.StatusAccepted
	}
	return run, nil
}

func (e *edge) listToolRuns(c *call) (page[proto.ToolRun], error) {
	data, more, err := e.Tools.Runs(c.owner, toolstore.Filter{
		Tool: c.query.Get("tool"), State: proto.ToolRunState(c.query.Get("state")), After: c.query.Get("after"),
		Limit: int(c.whole("limit")),
	})
	return listPart(data, more, err, func(r *proto.ToolRun) *string { return &r.ID })
}

func (e *edge) getToolRun(c *call) (proto.ToolRun, error) {
	ctx, cancel := c.untilWaited()
	defer cancel()
	return e.Tools.Await(ctx, c.owner, c.id())
}

func (e *edge) approveToolRun(c *call) (proto.ToolRun, error) {
	run, err := e.Tools.Approve(c.ctx(), c.owner, c.id())
	api.Note(c.ctx(), run.Tool)
	return run, err
}

func (e *edge) refuseToolRun(c *call, req proto.Refusal) (proto.ToolRun, error) {
	run, err := e.Tools.Refuse(c.ctx(), c.owner, c.id(), req)
	api.Note(c.ctx(), run.Tool)
	return run, err
}
