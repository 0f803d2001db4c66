package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"berth/code"
	"berth/proto"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var codeTool = tool{&sdk.Tool{
	Name: "run_code", Title: "Run code",
	Description: "Runs code and gives back the value of its last expression, what it printed, and figures as " +
		"images. Each call begins with a fresh interpreter, " +
		"unless context names one: that keeps its variables for the next call with the same name. Files are those " +
		"that bash sees.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	InputSchema: object([]string{"code"}, fields{
		"code":     text1("The program, or the cell of a context."),
		"language": choice("What it is written in; default python.", code.Names()...),
		"context": text1("Name of an interpreter that keeps its variables: letters, digits, - and _. It is " +
			"made at its first use."),
		"files": {"type": "array", "items": text1("A file's ID."),
			"description": "Stored files to put into $INPUT_DIR first."},
		"timeout_seconds": number("The code is ended after this long; without it, the daemon's default."),
		"container":       containerField,
	}),
	OutputSchema: outcomeSchema,
}, runCode}

type codeInput struct {
	Code           string   `json:"code"`
	Language       string   `json:"language,omitempty"`
	Context        string   `json:"context,omitempty"`
	Files          []string `json:"files,omitempty"`
	TimeoutSeconds float64  `json:"timeout_seconds,omitempty"`
	Container      string   `json:"container,omitempty"`
}

func runCode(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in codeInput
	if err := c.input(&in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Code) == "" {
		return nil, missing("code", "the text of a program")
	}
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	var out code.Outcome
	n := c.newProgress(ctx)
	n.runReporting(func() { out, err = c.outcome(ctx, s.ID(), in, n.progress()) })
	if err != nil {
		return nil, err
	}
	res := &sdk.CallToolResult{IsError: out.Error != "", Content: []sdk.Content{text(readable(out))}}
	res.Content = append(res.Content, images(out.Rich)...)
	for _, f := range out.Files {
		c.link(ctx, res, f.FileID)
	}
	out.Rich = withoutImages(out.Rich)
	res.StructuredContent = encode(out)
	return res, nil
}

// outcome runs the code as a cell of its context, or as a program.
func (c *call) outcome(ctx context.Context, container string, in codeInput, each func(code.Progress) error) (
	out code.Outcome, err error) {
	if in.Context != "" {
		return c.Code.Cell(ctx, c.visit.owner, container, in.Context, code.Cell{Code: in.Code, Language: in.Language,
			Files: in.Files, TimeoutSeconds: in.TimeoutSeconds}, each)
	}
	program := proto.Program{Code: in.Code, Language: in.Language, Container: container, Files: in.Files,
		TimeoutSeconds: in.TimeoutSeconds}
	err = c.Code.Once(ctx, c.visit.owner, program, each, func(o code.Outcome) error { out = o; return nil })
	return out, err
}

// readable formats the outcome of code for a model.
func readable(out code.Outcome) string {
	parts := []string{strings.Join(out.Logs.Stdout, ""), strings.Join(out.Logs.Stderr, "")}
	parts = append(parts, out.Results...)
	if d := out.ErrorDetail; d != nil && d.Traceback != "" {
		parts = append(parts, d.Traceback)
	} else if out.Error != "" {
		parts = append(parts, "Error: "+out.Error)
	}
	for _, n := range out.Notes {
		parts = append(parts, "Note: "+n)
	}
	return joined(parts...)
}

// shown are the media types of images that clients display.
var shown = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// images returns the images of the results, each once.
func images(rich []code.Bundle) (out []sdk.Content) {
	for _, b := range rich {
		for _, mime := range shown {
			var data string
			if json.Unmarshal(b[mime], &data) != nil {
				continue
			}
			if raw, err := base64.StdEncoding.DecodeString(data); err == nil {
				out = append(out, &sdk.ImageContent{MIMEType: mime, Data: raw})
				break
			}
		}
	}
	return out
}

// withoutImages removes the images from results, since they are content of their own.
func withoutImages(rich []code.Bundle) []code.Bundle {
	out := []code.Bundle{}
	for _, b := range rich {
		b = maps.Clone(b)
		maps.DeleteFunc(b, func(mime string, _ json.RawMessage) bool { return slices.Contains(shown, mime) })
		out = append(out, b)
	}
	return out
}
