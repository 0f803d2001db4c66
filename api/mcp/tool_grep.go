package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"berth/proto"
	"berth/session/filework"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var grepTool = tool{&sdk.Tool{
	Name: "grep_files", Title: "Find lines in files of the container",
	Description: "Finds the lines that match a regular expression (RE2) in the files below a directory, or in one " +
		"file. Binary files are skipped. Each line is PATH:LINE:COLUMN:TEXT, or PATH-LINE-TEXT for lines of context.",
	Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	InputSchema: object([]string{"pattern"}, fields{
		"pattern":      text1("A regular expression for one line."),
		"fixed":        flag("The pattern is the text itself."),
		"ignore_case":  flag("Compare without regard to case, in globs too."),
		"path":         text1("A directory or file: absolute, or relative to /workspace, which is the default."),
		"include":      texts("Only files that one of these globs matches, such as *.py or src/**/*.ts."),
		"exclude":      texts("Leave out what these globs match, and what is below, such as node_modules or .git."),
		"depth":        number("Levels of directories; 1 is the directory's own files. The default is all."),
		"context":      number("Lines around each match, up to 20."),
		"max_matches":  number("End after this many lines with a match, up to 2000; the default is 200."),
		"max_per_file": number("Lines with a match of one file. 1 lists the files that have any."),
		"container":    containerField,
	}),
}, runGrep}

type grepInput struct {
	Pattern    string   `json:"pattern"`
	Fixed      bool     `json:"fixed,omitempty"`
	IgnoreCase bool     `json:"ignore_case,omitempty"`
	Path       string   `json:"path,omitempty"`
	Include    []string `json:"include,omitempty"`
	Exclude    []string `json:"exclude,omitempty"`
	Depth      int      `json:"depth,omitempty"`
	Context    int      `json:"context,omitempty"`
	MaxMatches int      `json:"max_matches,omitempty"`
	MaxPerFile int      `json:"max_per_file,omitempty"`
	Container  string   `json:"container,omitempty"`
}

// maxGrepText bounds the lines of one result, in bytes.
const maxGrepText = 256 << 10

func runGrep(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in grepInput
	if err := c.input(&in); err != nil {
		return nil, err
	}
	o := proto.GrepOptions{FindOptions: proto.FindOptions{Names: in.Include, Exclude: in.Exclude,
		IgnoreCase: in.IgnoreCase, Depth: in.Depth}, Pattern: in.Pattern, Fixed: in.Fixed, LinesBefore: in.Context,
		LinesAfter: in.Context, MaxMatches: min(cmp.Or(in.MaxMatches, usualFound), maxFound), MaxPerFile: in.MaxPerFile}
	if err := o.Check(); err != nil {
		return nil, err
	}
	path := inWorkspace(in.Path)
	c.addAuditItems(path)
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	g, err := filework.OpenGrep(ctx, s.Files, proto.UserDefault, path, o)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	var b strings.Builder
	var sum proto.GrepSummary
	full := false
	err = g.Events(func(ev proto.GrepEvent) error {
		if ev.Summary != nil {
			sum = *ev.Summary
			return nil
		}
		if full = full || b.Len() > maxGrepText; !full {
			writeMatch(&b, ev)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if sum.Matches == 0 {
		b.WriteString("(nothing found)\n")
	}
	fmt.Fprintf(&b, "(%d matches in %d of %d files", sum.Matches, sum.Files, sum.Searched)
	if n := sum.SkippedFiles + sum.Skipped; n > 0 {
		fmt.Fprintf(&b, "; %d not readable", n)
	}
	if sum.Truncated || full {
		b.WriteString("; there may be more: narrow the search")
	}
	b.WriteString(")\n")
	return &sdk.CallToolResult{Content: []sdk.Content{text(b.String())}}, nil
}

// writeMatch adds a line about a line of a file.
func writeMatch(b *strings.Builder, ev proto.GrepEvent) {
	path := ev.Path
	if strings.ContainsAny(path, "\n\r") {
		path = fmt.Sprintf("%q", path)
	}
	if ev.Type == proto.GrepContext {
		fmt.Fprintf(b, "%s-%d-%s\n", path, ev.Line, ev.Text)
	} else {
		fmt.Fprintf(b, "%s:%d:%d:%s\n", path, ev.Line, ev.Column, ev.Text)
	}
}
