package mcp

import (
	"context"
	"encoding/json"
	"math"

	"berth/files/filename"
	"berth/proto"
	"berth/session"
	"berth/tools/tooluse"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var bashTool = tool{&sdk.Tool{
	Name: "bash", Title: "Run a command",
	Description: "Runs a command in a bash shell inside a Linux container. The shell persists: its directory, " +
		"variables and functions are there for the next call. " +
		"Files below /workspace are kept as long as the container. Files in $OUTPUT_DIR are stored and come back " +
		"as links.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	InputSchema: object(nil, fields{
		"command": text1("The command to run."),
		"restart": flag("End the shell and everything that runs in it; the next command starts a new shell. " +
			"Leave command out."),
		"timeout_seconds": number(
			"Time limit of the command; the shell ends with it. Default: that of the daemon."),
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
		return proto.Invalid("command", "command is missing; set it to a bash command, or set restart to true")
	case in.Restart && in.Command != nil && *in.Command != "":
		return proto.Invalid("restart", "restart takes no command; send the command in a second call")
	case !(in.TimeoutSeconds >= 0 && in.TimeoutSeconds <= maxTimeout) || math.IsNaN(in.TimeoutSeconds):
		return proto.Invalid("timeout_seconds", "timeout_seconds must be from 0 to %d", maxTimeout)
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
		Input: encode(bashInput{Command: in.Command, Restart: in.Restart})}
	use.Started = func(x *session.Exec) { began = x; follow(x) }
	var done tooluse.Result
	n.runReporting(func() {
		done, err = tooluse.Run(ctx, s, use)
		wait()
	})
	if err != nil {
		return nil, err
	}
	res := &sdk.CallToolResult{IsError: done.IsError, Content: c.contents(ctx, "", done.Content)}
	if began != nil {
		c.links(ctx, res, began)
	}
	return res, nil
}

// links adds links to the files that a command stored.
func (c *call) links(ctx context.Context, res *sdk.CallToolResult, x *session.Exec) {
	done, err := x.Wait(ctx)
	if err != nil { // the client has gone
		return
	}
	if done.Result.Result != nil {
		for _, f := range done.Result.Result.Content {
			c.link(ctx, res, f.FileID)
		}
	}
}

var editorTool = tool{&sdk.Tool{
	Name: "str_replace_based_edit_tool", Title: "View and edit files",
	Description: "Views, creates and edits files in the container. view shows a file with line numbers, an image, " +
		"or what a directory holds; " +
		"str_replace replaces a text that occurs exactly once in the file; insert adds lines after a line.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	InputSchema: object([]string{"command", "path"}, fields{
		"command": choice("What to do.", "view", "create", "str_replace", "insert"),
		"path":    text1("The file or directory: absolute, or relative to the working directory of commands."),
		"view_range": {"type": "array", "items": integer(""), "minItems": 2, "maxItems": 2,
			"description": "For view: the first and the last line, from 1; -1 is the file's last."},
		"file_text":   text1("For create: the content of the file."),
		"old_str":     text1("For str_replace: the text to replace, exactly as in the file."),
		"new_str":     text1("For str_replace: the new text; default: none."),
		"insert_line": integer("For insert: insert after this line; 0 is the top of the file."),
		"insert_text": text1("For insert: the text."),
		"container":   containerField,
	}),
}, runEditor}

type editorInput struct {
	proto.EditorInput
	Container string `json:"container,omitempty"`
}

func runEditor(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in editorInput
	if err := c.input(&in); err != nil {
		return nil, err
	}
	switch {
	case in.Command == "":
		return nil, missing("command", "view, create, str_replace or insert")
	case in.Path == "":
		return nil, missing("path", "the path of a file or directory")
	}
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	done, err := tooluse.Run(ctx, s, tooluse.Use{Type: "tool_use", ID: "mcp", Name: "str_replace_based_edit_tool",
		Input: encode(in.EditorInput)})
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{IsError: done.IsError, Content: c.contents(ctx, in.Path, done.Content)}, nil
}

// contents converts the result of package tooluse for a model. path is the file that a view shows.
func (c *call) contents(ctx context.Context, path string, content any) []sdk.Content {
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
		out = append(out, c.picture(ctx, filename.FromPath(path), b.Source.MediaType, b.Source.Data))
	}
	return out
}
