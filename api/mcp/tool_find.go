package mcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/session/filework"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var findTool = tool{&sdk.Tool{
	Name: "find_files", Title: "Find files in the container",
	Description: "Lists files and directories below a directory, in order, with type, size and time. A glob without " +
		"a slash is compared with the name, another one with the path below the directory; ** stands for any " +
		"directories.",
	Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	InputSchema: object(nil, fields{
		"path":            text1("The directory: absolute, or relative to /workspace, which is the default."),
		"name":            texts("Only what one of these globs matches, such as *.py or src/**/*.ts."),
		"exclude":         texts("Leave out what these globs match, and what is below, such as node_modules or .git."),
		"ignore_case":     flag("Compare without regard to case."),
		"type":            choice("Only entries of this type.", "file", "directory", "symlink", "other"),
		"min_size":        number("Only files of this size or more, in bytes."),
		"max_size":        number("Only files of this size or less, in bytes."),
		"modified_after":  text1("Only entries modified at this time or later, RFC 3339."),
		"modified_before": text1("Only entries modified before this time, RFC 3339."),
		"depth":           number("Levels of directories; 1 is the directory's own entries. The default is all."),
		"limit":           number("Maximum number of entries, 1 to 2000; the default is 200."),
		"after":           text1("Where to go on, from the result before."),
		"container":       containerField,
	}),
}, runFind}

func texts(what string) schema {
	return schema{"type": "array", "items": schema{"type": "string"}, "description": what}
}

// Bounds of the entries of one answer.
const (
	usualFound = 200
	maxFound   = 2000
)

type findInput struct {
	Path       string         `json:"path,omitempty"`
	Name       []string       `json:"name,omitempty"`
	Exclude    []string       `json:"exclude,omitempty"`
	IgnoreCase bool           `json:"ignore_case,omitempty"`
	Type       proto.FileType `json:"type,omitempty"`
	MinSize    int64          `json:"min_size,omitempty"`
	MaxSize    *int64         `json:"max_size,omitempty"`
	After      string         `json:"modified_after,omitempty"`
	Before     string         `json:"modified_before,omitempty"`
	Depth      int            `json:"depth,omitempty"`
	Limit      int            `json:"limit,omitempty"`
	Cursor     string         `json:"after,omitempty"`
	Container  string         `json:"container,omitempty"`
}

// options returns what the input asks for.
func (in findInput) options() (o proto.FindOptions, err error) {
	o = proto.FindOptions{Names: in.Name, Exclude: in.Exclude, IgnoreCase: in.IgnoreCase, MinSize: in.MinSize,
		MaxSize: in.MaxSize, Depth: in.Depth,
		Limit: min(cmp.Or(in.Limit, usualFound), maxFound)}
	types := []proto.FileType{proto.TypeFile, proto.TypeDirectory, proto.TypeSymlink, proto.TypeOther}
	switch {
	case in.Type == "":
	case !slices.Contains(types, in.Type):
		return o, proto.Invalid("type", "type must be file, directory, symlink or other, not %.80q", in.Type)
	default:
		o.Types = []proto.FileType{in.Type}
	}
	if o.After, err = moment("modified_after", in.After); err != nil {
		return o, err
	}
	if o.Before, err = moment("modified_before", in.Before); err != nil {
		return o, err
	}
	if o.Cursor, err = proto.ParseCursor(in.Cursor); err != nil {
		return o, err
	}
	return o, o.Check()
}

// moment reads a time, or nil for an empty text.
func moment(field, s string) (*proto.Time, error) {
	if s == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, proto.Invalid(field, "%s must be a time such as 2006-01-02T15:04:05Z, not %.80q", field, s)
	}
	at := proto.At(t)
	return &at, nil
}

func runFind(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in findInput
	if err := c.input(&in); err != nil {
		return nil, err
	}
	o, err := in.options()
	if err != nil {
		return nil, err
	}
	dir := inWorkspace(in.Path)
	c.addAuditItems(dir)
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	p, err := filework.Find(ctx, s.Files, proto.UserDefault, dir, o)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, fi := range p.Files {
		writeEntry(&b, fi)
	}
	switch {
	case p.Next != nil:
		fmt.Fprintf(&b, "(there may be more: go on with after=%s)\n", proto.EncodeCursor(p.Next))
	case len(p.Files) == 0:
		b.WriteString("(nothing found)\n")
	}
	if p.Skipped > 0 {
		fmt.Fprintf(&b, "(%d directories were left out: not readable, or too deep)\n", p.Skipped)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{text(b.String())}}, nil
}

// writeEntry adds a line about an entry: type, size, time and path. A path may have line ends, so such a one is quoted.
func writeEntry(b *strings.Builder, fi proto.FileInfo) {
	path := fi.Path
	if strings.ContainsAny(path, "\n\r") {
		path = fmt.Sprintf("%q", path)
	}
	if fi.Type == proto.TypeDirectory {
		path += "/"
	}
	if fi.Type == proto.TypeSymlink {
		path += " -> " + fi.Target
	}
	fmt.Fprintf(b, "%-9s %10d  %s  %s\n", fi.Type, fi.SizeBytes, fi.ModifiedAt.UTC().Format(time.RFC3339), path)
}
