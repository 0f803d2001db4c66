package mcp

import (
	"context"

	"berth/proto"
	"berth/tools/tooluse"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var editorTool = tool{&sdk.Tool{
	Name: "str_replace_based_edit_tool", Title: "View and edit files",
	Description: "Views, creates and edits files in the container. view shows a file with line numbers, an image, " +
		"or what a directory holds; " +
		"str_replace replaces a text that the file has exactly once; insert adds lines behind a line.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	InputSchema: object([]string{"command", "path"}, fields{
		"command": choice("What to do.", "view", "create", "str_replace", "insert"),
		"path":    text1("The file or directory: absolute, or relative to the working directory of commands."),
		"view_range": {"type": "array", "items": whole(""), "minItems": 2, "maxItems": 2,
			"description": "For view: the first and the last line, from 1; -1 is the file's last."},
		"file_text":   text1("For create: what the file is to hold."),
		"old_str":     text1("For str_replace: the text to replace, as it stands in the file."),
		"new_str":     text1("For str_replace: what takes its place; nothing if it is left out."),
		"insert_line": whole("For insert: the line behind which to insert; 0 is the top."),
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
	return &sdk.CallToolResult{IsError: done.IsError, Content: contents(done.Content)}, nil
}

// missing is the error for a missing field.
func missing(field, want string) error {
	return proto.Errorf(proto.InvalidArgument, "", field, "%s is missing; set it to %s", field, want)
}
