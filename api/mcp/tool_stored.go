package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"berth/proto"
	"berth/tools/toolstore"
	"berth/tools/toolstore/field"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// metaRun is the key of the run of a stored tool in the metadata of a result.
const metaRun = "berth/run"

// storedTool describes a stored tool to clients, with its own name and schemas.
func storedTool(t toolstore.Tool) tool {
	cfg := t.Configuration
	row := &sdk.Tool{
		Name: t.Name, Description: t.Description, InputSchema: field.JSONSchema(cfg.InputSchema),
		Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: &cfg.AllowNetwork},
	}
	if t.ApprovalAction == toolstore.ApprovalReview {
		row.Description = strings.TrimSpace(row.Description + "\nEach call waits until a person has approved it.")
	}
	if cfg.OutputSchema != nil {
		row.OutputSchema = field.JSONSchema(cfg.OutputSchema)
	}
	return tool{row, func(ctx context.Context, c *call) (*sdk.CallToolResult, error) { return runStored(ctx, c, t) }}
}

// runStored runs the version that the client was shown, in a container of its own.
func runStored(ctx context.Context, c *call, t toolstore.Tool) (res *sdk.CallToolResult, err error) {
	var run toolstore.Run
	c.newProgress(ctx).runReporting(func() {
		run, _, err = c.Tools.Run(ctx, c.peer.owner, t.ID, toolstore.RunRequest{Input: c.params.Arguments,
			Version: t.Version, Confinement: c.confinementFor(t)})
		if err == nil && run.State == proto.RunParked {
			run, err = c.decided(ctx, run)
		}
	})
	if err != nil {
		return nil, err
	}
	return c.told(ctx, t, run), nil
}

// confinementFor returns what the session asks of a stored tool's container. What the tool asks for itself holds.
func (c *call) confinementFor(t toolstore.Tool) proto.Confinement {
	asked, own := c.peer.place.Confinement, t.Configuration.Confinement
	return own.Or(asked)
}

// decided waits for a person's decision. If the client stops waiting, the run is refused, so that no one approves it
// later.
func (c *call) decided(ctx context.Context, run toolstore.Run) (toolstore.Run, error) {
	over, err := c.Tools.Await(ctx, c.peer.owner, run.ID)
	if err != nil || over.State.Over() {
		return over, err
	}
	// A run that was approved at this moment continues; the list of runs has it.
	_, _ = c.Tools.Refuse(context.WithoutCancel(ctx), c.peer.owner, run.ID, toolstore.Refusal{
		Reason: "the client stopped waiting"})
	return over, context.Cause(ctx)
}

// told formats a finished run for a model.
func (c *call) told(ctx context.Context, t toolstore.Tool, run toolstore.Run) *sdk.CallToolResult {
	res := &sdk.CallToolResult{IsError: run.State != proto.RunSucceeded,
		Meta: sdk.Meta{metaRun: map[string]any{"id": run.ID, "version": run.Version, "state": run.State}}}
	out, warned := strings.Join(run.Logs.Stdout, ""), strings.Join(run.Logs.Stderr, "")
	if res.IsError {
		res.Content = []sdk.Content{text(joined(out, warned, whyNot(run)))}
	} else {
		c.addOutput(ctx, res, t, run.Output)
		if out+warned != "" {
			res.Content = append(res.Content, text("Printed:\n"+joined(out, warned)))
		}
	}
	for _, f := range run.Files {
		c.link(ctx, res, f.FileID)
	}
	c.notes = append(c.notes, run.Notes...)
	return res
}

// addOutput adds the output of a run: as text, and as structured content if it is an object. A large output is not
// sent twice: the schema of the tool decides where it is whole.
func (c *call) addOutput(ctx context.Context, res *sdk.CallToolResult, t toolstore.Tool, output json.RawMessage) {
	var object map[string]any
	isObject := json.Unmarshal(output, &object) == nil && object != nil
	size, declared := len(encode(output)), t.Configuration.OutputSchema != nil // markup is escaped
	large := size > maxTwice
	switch {
	case size > maxStructured:
		// without structured content, clients refuse the result of a tool with a schema unless it is an error
		res.IsError = declared
		res.Content = []sdk.Content{text(fmt.Sprintf("The run succeeded. Its output has %d bytes and is the stored "+
			"file below.", len(output))), c.storedLink(ctx, "The output", t.Name+"-output.json", "application/json",
			output)}
	case large && isObject && declared:
		res.Content = []sdk.Content{text(cutText(string(output), maxTwice))}
		res.StructuredContent = output
	default:
		res.Content = []sdk.Content{text(string(output))}
		if isObject && !large {
			res.StructuredContent = output
		}
	}
}

// whyNot explains why there is no output.
func whyNot(run toolstore.Run) string {
	switch e := run.Error; {
	case run.Decision != nil && run.Decision.Reason != "":
		return "Error: a person refused this call: " + run.Decision.Reason
	case e != nil && e.Traceback != "":
		return e.Traceback
	case e != nil:
		return "Error: " + e.Message
	}
	return fmt.Sprintf("Error: this call was %s", run.State)
}
