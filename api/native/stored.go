package native

import (
	"context"
	"net/http"
	"time"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
	"berth/tools/toolstore"
)

// runBody bounds the body of a run's request, in bytes: an input, and what stands beside it.
const runBody = toolstore.MaxInput + 64<<10

func (e *edge) toolRows() []row {
	const tag, at, runs = "stored tools", "/v1/tools/{name}", "/v1/tool_runs"
	version := openapi.Param{Name: "version", Kind: openapi.Whole, Description: "One of its versions; without it, the current one."}
	changes := append([]int{409}, inOwn...)
	return []row{
		{"POST", "/v1/tools", api.None, e.createTool, openapi.Operation{ID: "createTool", Tag: tag, Summary: "Store a tool.", Description: toolMore,
			Body: js(toolstore.NewTool{}), Answers: created(toolstore.Tool{}), Fails: append([]int{409, 503, 507},
				basic...)}},
		{"GET", "/v1/tools", api.None, e.listTools, openapi.Operation{ID: "listTools", Tag: tag, Summary: "List tools, by name.",
			Answers: ok(page[toolstore.Tool]{}), Fails: basic}},
		{"GET", at, api.None, e.getTool, openapi.Operation{ID: "getTool", Tag: tag, Summary: "Describe a tool, by its name or ID.",
			Query: []openapi.Param{version}, Answers: ok(toolstore.Tool{}), Fails: inOwn}},
		{"PATCH", at, api.None, e.changeTool, openapi.Operation{ID: "changeTool", Tag: tag, Summary: "Make a new version of a tool.",
			Description: "What is left out stays as it is. A configuration is given whole; without env_variables it keeps " +
				"those that there are, and with {} it has none.",
			Body: js(toolstore.ChangeTool{}), Answers: ok(toolstore.Tool{}), Fails: append([]int{503}, changes...)}},
		{"DELETE", at, api.None, e.deleteTool, openapi.Operation{ID: "deleteTool", Tag: tag, Summary: "Remove a tool with its versions. Its " +
			"runs stay; those that wait for approval are refused.",
			Answers: ok(deletion{}), Fails: inOwn}},
		{"GET", at + "/versions", api.None, e.toolVersions, openapi.Operation{ID: "listToolVersions", Tag: tag,
			Summary: "List the versions of a tool, newest first.", Answers: ok(page[toolstore.Tool]{}), Fails: inOwn}},
		{"POST", at + "/run", api.InBody, e.runTool, withReplays(openapi.Operation{ID: "runTool", Tag: tag, Summary: "Run a tool on an input.",
			Description: toolRunMore,
			Body:        js(toolstore.RunRequest{}), Optional: true,
			Answers: map[int][]openapi.Content{http.StatusOK: js(toolstore.Run{}), http.StatusAccepted: js(toolstore.Run{})},
			Fails:   append([]int{409, 410, 501, 503}, inOwn...)})},
		{"GET", runs, api.None, e.listToolRuns, openapi.Operation{ID: "listToolRuns", Tag: tag, Summary: "List runs of tools, newest first.",
			Query: []openapi.Param{
				{Name: "tool", Description: "Only runs of this tool, by name or ID."},
				{Name: "state", Description: "Only runs in this state.", Choices: names(proto.ToolRunStates)},
				{Name: "limit", Kind: openapi.Whole, Max: 100, Description: "At most so many, 1 to 100; 0 is the default, 20. " +
					"Fewer come where they are large."},
				{Name: "after", Pattern: "^(run_[0-9A-Za-z]{22})?$", Description: "A run's ID: begin behind it."},
			}, Answers: ok(toolRunPage{}), Fails: basic}},
		{"GET", runs + "/{id}", api.None, e.getToolRun, openapi.Operation{ID: "getToolRun", Tag: tag, Summary: "Describe a run, waiting for its " +
			"end if asked to.",
			Query:   []openapi.Param{{Name: "wait_seconds", Kind: openapi.Whole, Max: 86400, Description: "How long to wait for the end."}},
			Answers: ok(toolstore.Run{}), Fails: inOwn}},
		{"POST", runs + "/{id}/approve", api.None, e.approveToolRun, openapi.Operation{ID: "approveToolRun", Tag: tag,
			Summary: "Let a parked run begin. It goes on in the background.",
			Description: "An approval is for one run, and only the first decision about it counts: later ones are a " +
				"409. One that comes too late is a 410.",
			Answers: map[int][]openapi.Content{http.StatusAccepted: js(toolstore.Run{})},
			Fails:   append([]int{409, 410, 501, 503}, inOwn...)}},
		{"POST", runs + "/{id}/refuse", api.None, e.refuseToolRun, openapi.Operation{ID: "refuseToolRun", Tag: tag,
			Summary: "End a parked run before it begins.",
			Body:    js(toolstore.Refusal{}), Optional: true, Answers: ok(toolstore.Run{}), Fails: append([]int{409, 410},
				inOwn...)}},
	}
}

const toolMore = "The code defines run(input). It is checked for syntax, and for run, before it is stored. " +
	"input_schema and output_schema are flat lists of fields; their types are upper case. " +
	"Values of env_variables are sealed and never told again. With \"approval_action\": \"review\" each run waits " +
	"until somebody approves it."

const toolRunMore = "Answers with the run once it is over, whether it succeeded or failed; an input that does not " +
	"fit input_schema is a 400 that names the field, and no run. Fields that the schema does not have are dropped, " +
	"which a note says. " +
	"A run that waits for approval, or has \"background\": true, is a 202 at once. When the client goes away the " +
	"run is ended, unless it has \"background\" or an idempotency key."

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
	api.Note(c.r.Context(), shown(req.Name))
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
	if err := c.retryKey(&req.IdempotencyKey); err != nil {
		return err
	}
	run, replayed, err := e.Tools.Run(c.r.Context(), c.owner, c.r.PathValue("name"), req)
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), run.ID)
	c.replayed(replayed)
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
