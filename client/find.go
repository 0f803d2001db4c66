package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/proto"
)

// List lists a directory, whatever its size, in pages.
func (f FS) List(ctx context.Context, path string) (list []proto.FileInfo, err error) {
	r := f.request(http.MethodGet, "list", path)
	for {
		p, err := f.page(ctx, r)
		list = append(list, p.Files...)
		if err != nil || p.Next == nil {
			return list, err
		}
		r.query.Set("after", proto.EncodeCursor(p.Next))
	}
}

// Find returns a page of the entries below a directory. The page after it begins at FindPage.Next.
func (f FS) Find(ctx context.Context, dir string, o proto.FindOptions) (p proto.FindPage, err error) {
	r := f.request(http.MethodGet, "find", dir)
	setGlobs(r.query, o)
	for _, t := range o.Types {
		r.query.Add("type", string(t))
	}
	setWhole(r.query, "min_size", o.MinSize)
	if o.MaxSize != nil {
		r.query.Set("max_size", strconv.FormatInt(*o.MaxSize, 10))
	}
	for name, t := range map[string]*proto.Time{"modified_after": o.After, "modified_before": o.Before} {
		if t != nil {
			r.query.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	setWhole(r.query, "depth", int64(o.Depth))
	setWhole(r.query, "limit", int64(o.Limit))
	if o.Cursor != nil {
		r.query.Set("after", proto.EncodeCursor(o.Cursor))
	}
	return f.page(ctx, r)
}

// page reads a page of entries.
func (f FS) page(ctx context.Context, r request) (p proto.FindPage, err error) {
	var found struct {
		Data      []proto.FileInfo `json:"data"`
		NextAfter *string          `json:"next_after"`
		Skipped   int              `json:"skipped_directories"`
	}
	if _, err = f.c.call(ctx, r, &found); err != nil {
		return p, err
	}
	p = proto.FindPage{Files: found.Data, Skipped: found.Skipped}
	if found.NextAfter != nil {
		p.Next, err = proto.ParseCursor(*found.NextAfter)
	}
	return p, err
}

// All returns all entries below a directory that the options select, from page to page. If skipped is not nil, it is
// set to the number of directories that were left out.
func (f FS) All(ctx context.Context, dir string, o proto.FindOptions, skipped *int) iter.Seq2[proto.FileInfo, error] {
	return func(yield func(proto.FileInfo, error) bool) {
		for {
			p, err := f.Find(ctx, dir, o)
			if err != nil {
				yield(proto.FileInfo{}, err)
				return
			}
			if skipped != nil {
				*skipped += p.Skipped
			}
			for _, fi := range p.Files {
				if !yield(fi, nil) {
					return
				}
			}
			if p.Next == nil {
				return
			}
			o.Cursor = p.Next
		}
	}
}

func setGlobs(q url.Values, o proto.FindOptions) {
	for _, g := range o.Names {
		q.Add("name", g)
	}
	for _, g := range o.Exclude {
		q.Add("exclude", g)
	}
	if o.IgnoreCase {
		q.Set("ignore_case", "true")
	}
}

// setWhole sets a number, unless it is 0, the default.
func setWhole(q url.Values, name string, n int64) {
	if n != 0 {
		q.Set(name, strconv.FormatInt(n, 10))
	}
}

// Grep searches the files below a directory, or one file. each receives every line as soon as it is found, and at last
// the summary (proto.GrepEnd). Grep returns the error of each.
func (f FS) Grep(ctx context.Context, path string, o proto.GrepOptions, each func(proto.GrepEvent) error) error {
	r := f.request(http.MethodGet, "grep", path)
	setGlobs(r.query, o.FindOptions)
	r.query.Set("pattern", o.Pattern)
	if o.Fixed {
		r.query.Set("fixed", "true")
	}
	for name, n := range map[string]int{"depth": o.Depth, "lines_before": o.LinesBefore, "lines_after": o.LinesAfter,
		"max_matches": o.MaxMatches, "max_per_file": o.MaxPerFile} {
		setWhole(r.query, name, int64(n))
	}
	ended := false
	err := followEvents(ctx, f.c, r, func(ev proto.GrepEvent) error {
		ended = ended || ev.Type == proto.GrepEnd
		return each(ev)
	})
	if err == nil && !ended {
		err = f.c.broken(ctx, io.ErrUnexpectedEOF)
	}
	return err
}
