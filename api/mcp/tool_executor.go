package mcp

import (
	"context"

	"berth/code"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var executorTool = tool{&sdk.Tool{
	Name: "code_executor", Title: "Execute a script",
	Description: "Runs a script of Python or Node in a fresh container and answers with its exit code and output as " +
		"Markdown. At most 15 seconds and 64 KB of each stream; nothing is kept between calls.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()},
	InputSchema: object([]string{"language", "code"}, fields{
		"language": choice("What the script is written in.", code.ScriptLanguages...),
		"code":     text1("The script."),
	}),
}, runExecutor}

func runExecutor(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in code.Script
	if err := c.input(&in); err != nil {
		return nil, err
	}
	switch {
	case in.Language == "":
		return nil, missing("language", "python or node")
	case in.Code == "":
		return nil, missing("code", "the text of a script")
	}
	var err error
	res := &sdk.CallToolResult{}
	c.newProgress(ctx).runReporting(func() {
		err = c.Code.Execute(ctx, c.visit.owner, in, func(markdown string, failed bool) error {
			res.Content, res.IsError = []sdk.Content{text(markdown)}, failed
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}
