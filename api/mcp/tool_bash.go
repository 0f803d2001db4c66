package mcp

import (
	"context"
	"encoding/json"
	"math"

	"berth/proto"
	"berth/session"
	"berth/tools/tooluse"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var bashTool = tool{&sdk.Tool{
	Name: "bash", Title: "Run a command",
	Description: "Runs a command in a bash shell inside a Linux container. The shell persists: its directory, " +
		"variables and functions are there for the next call. " +
		"Files below /workspace are kept as long as the container. What is put at the top of $OUTPUT_DIR comes back " +
		"as a stored file.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	InputSchema: object(nil, fields{
		"command": text1("The command to run."),
		"restart": flag("End the shell with all that runs in it; the next command begins a fresh one. " +
			"Without a command."),
		"timeout_seconds": number(
			"The command is ended after this long, with the shell; without it, the daemon's default."),
		"container": containerField,
	}),
}, runBash}

// maxTimeout is the longest time limit of a command, in seconds.
const maxTimeout = 24 * 60 * 60

type bashInput struct {
	Command        *string `json:"command,omitempty"`
	Restart        bool    `json:"restart,omitempty"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	Container      string  `json:"container,omitempty"`
}

func (in bashInput) check() error {
	switch {
	case !in.Restart && (in.Command == nil || *in.Command == ""):
		return proto.Errorf(proto.InvalidArgument, "", "command", "command is missing; set it to what bash is to "+
			"run, or set restart")
	case in.Restart && in.Command != nil:
		return proto.Errorf(proto.InvalidArgument, "", "restart", "restart goes without a command; send the command "+
			"in a call of its own")
	case !(in.TimeoutSeconds >= 0 && in.TimeoutSeconds <= maxTimeout) || math.IsNaN(in.TimeoutSeconds):
		return proto.Errorf(proto.InvalidArgument, "", "timeout_seconds", "timeout_seconds must be from 0 to %d",
			maxTimeout)
	}
	return nil
}

func runBash(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in bashInput
	if err := c.input(&in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	var began *session.Exec
	n := c.newProgress(ctx)
	follow, wait := n.follow(ctx)
	use := tooluse.Use{Type: "tool_use", ID: "mcp", Name: "bash", TimeoutSeconds: in.TimeoutSeconds,
		Input: encode(struct {
			Command *string `json:"command,omitempty"`
			Restart bool    `json:"restart,omitempty"`
		}{in.Command, in.Restart})}
	use.Started = func(x *session.Exec) { began = x; follow(x) }
	var done tooluse.Result
	n.runReporting(func() {
		done, err = tooluse.Run(ctx, s, use)
		wait()
	})
	if err != nil {
		return nil, err
	}
	res := &sdk.CallToolResult{IsError: done.IsError, Content: contents(done.Content)}
	if began != nil {
		c.links(ctx, res, began)
	}
	return res, nil
}

// links adds the files that a command has made to a result.
func (c *call) links(ctx context.Context, res *sdk.CallToolResult, x *session.Exec) {
	done, err := x.Wait(ctx)
	if err != nil { // the client has gone
		return
	}
	c.notes = append(c.notes, done.Notes...)
	if done.Result.Result != nil {
		for _, f := range done.Result.Result.Content {
			c.link(ctx, res, f.FileID)
		}
	}
}

// contents converts the result of package tooluse for a model.
func contents(content any) []sdk.Content {
	if s, ok := content.(string); ok {
		return []sdk.Content{text(joined(s))}
	}
	var blocks []struct {
		Source struct {
			MediaType string `json:"media_type"`
			Data      []byte `json:"data"`
		} `json:"source"`
	}
	if err := json.Unmarshal(encode(content), &blocks); err != nil {
		return []sdk.Content{text(string(encode(content)))}
	}
	var out []sdk.Content
	for _, b := range blocks {
		out = append(out, &sdk.ImageContent{MIMEType: b.Source.MediaType, Data: b.Source.Data})
	}
	return out
}
