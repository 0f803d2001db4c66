package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"path"
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
	res.Content = append(res.Content, c.images(ctx, out.Rich)...)
	for _, f := range out.Files {
		c.link(ctx, res, f.FileID)
	}
	out.Rich = withoutImages(out.Rich)
	c.cutOutcome(ctx, res, &out)
	res.StructuredContent = encode(out)
	return res, nil
}

// outcome runs the code as a cell of its context, or as a program.
func (c *call) outcome(ctx context.Context, container string, in codeInput, each func(code.Progress) error) (
	out code.Outcome, err error) {
	if in.Context != "" {
		return c.Code.Cell(ctx, c.peer.owner, container, in.Context, code.Cell{Code: in.Code, Language: in.Language,
			Files: in.Files, TimeoutSeconds: in.TimeoutSeconds}, each)
	}
	program := proto.Program{Code: in.Code, Language: in.Language, Container: container, Files: in.Files,
		TimeoutSeconds: in.TimeoutSeconds}
	err = c.Code.Once(ctx, c.peer.owner, program, each, func(o code.Outcome) error { out = o; return nil })
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
func (c *call) images(ctx context.Context, rich []code.Bundle) (out []sdk.Content) {
	for i, b := range rich {
		for _, media := range shown {
			var data string
			if json.Unmarshal(b[media], &data) != nil {
				continue
			}
			if raw, err := base64.StdEncoding.DecodeString(data); err == nil {
				out = append(out, c.picture(ctx, fmt.Sprintf("result-%d.%s", i+1, path.Base(media)), media, raw))
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
		maps.DeleteFunc(b, func(media string, _ json.RawMessage) bool { return slices.Contains(shown, media) })
		out = append(out, b)
	}
	return out
}

// maxRichLinks bounds the forms of results that are stored, since they do not fit into the answer.
const maxRichLinks = 16

// cutOutcome makes an outcome small enough for structured content. The text of the answer has what is cut here. Forms
// of results that are too large become links.
func (c *call) cutOutcome(ctx context.Context, res *sdk.CallToolResult, out *code.Outcome) {
	if len(encode(out)) <= 2*maxTwice {
		return
	}
	for _, lines := range []*[]string{&out.Logs.Stdout, &out.Logs.Stderr} {
		*lines = cutLines(*lines, maxTwice)
	}
	each := maxTwice / max(1, len(out.Results)) // there are at most 200
	out.Results = slices.Clone(out.Results)
	for i := range out.Results {
		out.Results[i] = cutText(out.Results[i], each)
	}
	out.Error = cutText(out.Error, maxTwice)
	if d := out.ErrorDetail; d != nil {
		short := *d
		short.Message, short.Traceback = cutText(d.Message, minText), cutText(d.Traceback, maxTwice)
		out.ErrorDetail = &short
	}
	size, links := len(encode(out)), 0
	for i, b := range out.Rich {
		for _, media := range largestFirst(b) {
			data := b[media]
			if size <= maxStructured/2 {
				return
			}
			if media != "text/plain" && links < maxRichLinks {
				links++
				name, content := storedForm(i, media, data)
				res.Content = append(res.Content, c.storedLink(ctx, fmt.Sprintf("Result %d as %s", i+1, media), name,
					media, content))
			}
			delete(b, media) // b is a copy, which withoutImages made
			size -= len(data)
			out.Truncated = true
		}
	}
}

// storedForm returns the name and the content of a file with one form of a result.
func storedForm(i int, media string, data json.RawMessage) (name string, content []byte) {
	name = fmt.Sprintf("result-%d", i+1)
	if ext, err := mime.ExtensionsByType(media); err == nil && len(ext) > 0 {
		name += ext[0]
	}
	var s string
	if strings.HasSuffix(media, "json") || json.Unmarshal(data, &s) != nil {
		return name, data
	}
	if raw, err := base64.StdEncoding.DecodeString(s); err == nil && !strings.HasPrefix(media, "text/") {
		return name, raw
	}
	return name, []byte(s)
}

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

// A model chooses the program, and the client that has started the session how it is confined.
type executorInput struct {
	Language string `json:"language"`
	Code     string `json:"code"`
}

func runExecutor(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in executorInput
	if err := c.input(&in); err != nil {
		return nil, err
	}
	switch {
	case in.Language == "":
		return nil, missing("language", "python or node")
	case in.Code == "":
		return nil, missing("code", "the text of a script")
	}
	script := code.Script{Language: in.Language, Code: in.Code, Confinement: c.peer.place.Confinement}
	var err error
	res := &sdk.CallToolResult{}
	c.newProgress(ctx).runReporting(func() {
		err = c.Code.Execute(ctx, c.peer.owner, script, func(r code.Report) error {
			res.Content, res.IsError = []sdk.Content{text(r.Text)}, r.Failed
			if r.Note != "" {
				c.notes = append(c.notes, r.Note)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}
