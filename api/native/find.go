package native

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"berth/api"
	"berth/api/native/document"
	"berth/api/openapi"
	"berth/proto"
	"berth/session"
	"berth/session/filework"
)

// findRows are the routes that search for files in a container.
func (e *edge) findRows() []row {
	const at = "/v1/containers/{id}/fs"
	return []row{
		{"GET", at + "/list", getFiles(e, e.listDirectory), openapi.Operation{ID: "listDirectory",
			Summary: "List a directory, sorted by name, and those below it if requested.",
			Description: "Each directory stands before what is in it. Entries that are there all the time are on one " +
				"page each, whatever comes and goes meanwhile.",
			Query: []openapi.Param{pathParam, asParam,
				{Name: "depth", Kind: openapi.Whole, Max: proto.MaxFindDepth, Description: "Levels of directories; 1 " +
					"is the default, the directory's own entries. Links are not followed, nor is /proc entered."},
				findLimit, afterPage},
			Fails: inGuest}},
		{"GET", at + "/find", getFiles(e, e.findFiles), openapi.Operation{ID: "findFiles",
			Summary: "Find files and directories below a directory.",
			Description: "All conditions must hold. The order is that of list. One request examines about a million " +
				"entries, or 15 seconds long, so a page may be short or empty although has_more is true.",
			Query: append(append([]openapi.Param{pathParam, asParam}, globParams...),
				openapi.Param{Name: "type", Repeat: true, Choices: document.Values[proto.FileType](),
					Description: "Only entries of this type. May be repeated."},
				openapi.Param{Name: "min_size", Kind: openapi.Whole, Description: "Only files of this size or " +
					"more, in bytes."},
				openapi.Param{Name: "max_size", Kind: openapi.Whole, Description: "Only files of this size or " +
					"less, in bytes."},
				openapi.Param{Name: "modified_after", Kind: openapi.Date, Description: "Only entries modified at " +
					"this time or later, RFC 3339."},
				openapi.Param{Name: "modified_before", Kind: openapi.Date, Description: "Only entries modified " +
					"before this time, RFC 3339."},
				openapi.Param{Name: "depth", Kind: openapi.Whole, Max: proto.MaxFindDepth, Description: "Levels of " +
					"directories; 1 is the directory's own entries, 0 the default, all."},
				findLimit, afterPage),
			Answers: answers(http.StatusOK, js(foundFiles{})), Fails: inGuest}},
		{"GET", at + "/grep", getFiles(e, e.grepFiles), openapi.Operation{ID: "grepFiles",
			Summary: "Find lines in a file, or in the files below a directory.",
			Description: "Files with a NUL byte are binary and skipped, as are the views of the kernel's state such " +
				"as /proc. The answer has up to 8 MiB. With Accept: text/event-stream each line is an event as soon " +
				"as it is found, and the last event has the summary. The search ends when its client goes away, and " +
				"after 10 minutes.",
			Query: append(append([]openapi.Param{pathParam, asParam,
				{Name: "pattern", Required: true, Description: "A regular expression of RE2 for one line, up to " +
					"4,096 bytes. A line of more than 256 KiB is searched in pieces."},
				{Name: "fixed", Kind: openapi.Flag, Description: "pattern is the text itself."}}, globParams...),
				openapi.Param{Name: "depth", Kind: openapi.Whole, Max: proto.MaxFindDepth, Description: "Levels of " +
					"directories; 1 is the directory's own files, 0 the default, all."},
				openapi.Param{Name: "lines_before", Kind: openapi.Whole, Max: proto.MaxGrepContext,
					Description: "Lines before each match."},
				openapi.Param{Name: "lines_after", Kind: openapi.Whole, Max: proto.MaxGrepContext,
					Description: "Lines after each match."},
				openapi.Param{Name: "max_matches", Kind: openapi.Whole, Max: proto.MaxGrepMatches,
					Description: "End after this many lines with a match; 0 is the default, 1,000."},
				openapi.Param{Name: "max_per_file", Kind: openapi.Whole, Max: math.MaxInt32,
					Description: "Go on with the next file after this many lines with a match; 0 is the default, " +
						"all."}),
			Answers: withEvents(answers(http.StatusOK, js(foundLines{})), proto.GrepEvent{}), Fails: inGuest}},
	}
}

// The lines that a search has found.
type foundLines struct {
	Data    []proto.GrepEvent `json:"data"` // Matches and their context, by file and line.
	Summary proto.GrepSummary `json:"summary"`
}

// grepFiles answers with all lines, or with events. The guest bounds what it finds.
func (e *edge) grepFiles(c *call, s session.Files) (any, error) {
	o := proto.GrepOptions{FindOptions: c.globs(), Pattern: c.query.Get("pattern"), Fixed: c.flag("fixed"),
		LinesBefore: int(c.whole("lines_before")), LinesAfter: int(c.whole("lines_after")),
		MaxMatches: int(c.whole("max_matches")), MaxPerFile: int(c.whole("max_per_file"))}
	o.Depth = int(c.whole("depth"))
	if err := o.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.ctx())
	defer cancel()
	g, err := filework.OpenGrep(ctx, s, c.as(), c.query.Get("path"), o)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	if c.wantsEvents() {
		return nil, c.streamEvents(cancel, func(es *api.EventStream) error {
			return g.Events(func(ev proto.GrepEvent) error { return es.Send(string(ev.Type), ev) })
		})
	}
	found := foundLines{Data: []proto.GrepEvent{}}
	room := maxFoundLines
	err = g.Events(func(ev proto.GrepEvent) error {
		if ev.Summary != nil {
			found.Summary = *ev.Summary
		} else if room -= 200 + len(ev.Path) + len(ev.RawPath) + len(ev.Text); room < 0 {
			return proto.Errorf(proto.Unavailable, "", s.ID(), "the container sent more than a search may find")
		} else {
			found.Data = append(found.Data, ev)
		}
		return nil
	})
	return found, err
}

// maxFoundLines bounds the text of the lines of one answer, in bytes. It is more than a guest sends.
const maxFoundLines = 32 << 20

var (
	findLimit = openapi.Param{Name: "limit", Kind: openapi.Whole, Max: proto.MaxFindPage, Description: "Maximum " +
		"length of the page; 0 is the default, 10,000. A page of very long paths has fewer."}
	afterPage = openapi.Param{Name: "after", Pattern: "^[0-9A-Za-z_-]*$", Description: "next_after of the page " +
		"before; the other parameters must be the same."}
	globParams = []openapi.Param{
		{Name: "name", Repeat: true, Description: "Only what this glob matches: *, ? and [a-z] within a name, ** for " +
			"any directories. A glob without a slash is compared with the last part of the path, another one with " +
			"the path below the directory. May be repeated, up to 64 times; one must match."},
		{Name: "exclude", Repeat: true, Description: "Leave out what this glob matches, directories with all that is " +
			"below. May be repeated, up to 64 times."},
		{Name: "ignore_case", Kind: openapi.Flag, Description: "Compare without regard to case."},
	}
)

// What a directory holds.
type listing struct {
	foundFiles
	Truncated bool `json:"truncated" schema:"deprecated"` // The same as has_more.
}

func (e *edge) listDirectory(c *call, s session.Files) (listing, error) {
	o := proto.FindOptions{Depth: cmp.Or(int(c.whole("depth")), 1)}
	p, err := c.find(s, o)
	if proto.CodeOf(err) == proto.Unsupported && o.Depth == 1 && !c.query.Has("limit") && !c.query.Has("after") {
		// a guest of an earlier version, which has no pages
		data, truncated, err := s.List(c.ctx(), c.as(), c.query.Get("path"))
		return listing{foundFiles{Data: append([]proto.FileInfo{}, data...), HasMore: truncated}, truncated}, err
	}
	return listing{p, p.HasMore}, err
}

// One page of what a search found.
type foundFiles struct {
	Data    []proto.FileInfo `json:"data"`
	HasMore bool             `json:"has_more"`
	// Value of after for the next page; null on the last one.
	NextAfter *string `json:"next_after"`
	// Directories that were left out: unreadable, too deep, or with too long a path.
	SkippedDirectories int `json:"skipped_directories,omitempty"`
}

func (e *edge) findFiles(c *call, s session.Files) (foundFiles, error) {
	o := c.globs()
	for _, t := range c.query["type"] {
		o.Types = append(o.Types, proto.FileType(t))
	}
	o.MinSize, o.Depth = c.whole("min_size"), int(c.whole("depth"))
	if c.query.Has("max_size") {
		most := c.whole("max_size")
		o.MaxSize = &most
	}
	o.After, o.Before = timeOrNil(c.moment("modified_after")), timeOrNil(c.moment("modified_before"))
	return c.find(s, o)
}

// globs reads the parameters globParams.
func (c *call) globs() proto.FindOptions {
	return proto.FindOptions{Names: slices.Clone(c.query["name"]), Exclude: slices.Clone(c.query["exclude"]),
		IgnoreCase: c.flag("ignore_case")}
}

func timeOrNil(t time.Time) *proto.Time {
	if t.IsZero() {
		return nil
	}
	at := proto.At(t)
	return &at
}

// find answers with the page that limit and after select.
func (c *call) find(s session.Files, o proto.FindOptions) (found foundFiles, err error) {
	o.Limit = int(c.whole("limit"))
	if o.Cursor, err = proto.ParseCursor(c.query.Get("after")); err != nil {
		return found, err
	}
	if err := o.Check(); err != nil {
		return found, err
	}
	p, err := filework.Find(c.ctx(), s, c.as(), c.query.Get("path"), o)
	found = foundFiles{Data: append([]proto.FileInfo{}, p.Files...), HasMore: p.Next != nil,
		SkippedDirectories: p.Skipped}
	if p.Next != nil {
		next := proto.EncodeCursor(p.Next)
		found.NextAfter = &next
	}
	return found, err
}
