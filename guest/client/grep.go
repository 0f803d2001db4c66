package client

import (
	"context"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// maxGrepEvent is more than the length of any event of a search, in bytes: a path twice and a text, of which each byte
// may take six in JSON.
const maxGrepEvent = 6*(3*unix.PathMax+3*maxGrepText) + 4096

const maxGrepText = 2000

// Grep searches the files below a directory, or one file. The caller must close the events; ctx ends them too.
func (c *Client) Grep(ctx context.Context, as, path string, o proto.GrepOptions) (*Events[proto.GrepEvent], error) {
	if err := c.knows(ctx, wire.FilesGrep); err != nil {
		return nil, err
	}
	return openEvents(ctx, c, &wire.Request{Op: wire.OpGrep, As: as, Path: []byte(path), Grep: &o}, maxGrepEvent,
		plausibleGrep)
}

// plausibleGrep reports whether a guest may send an event.
func plausibleGrep(ev *proto.GrepEvent) bool {
	if len(ev.Path) > longestPath || len(ev.RawPath) > longestPath || len(ev.Text) > 3*maxGrepText || ev.Line < 0 ||
		ev.Column < 0 || ev.Length < 0 || ev.TextColumn < 0 {
		return false
	}
	switch ev.Type {
	case proto.GrepMatch, proto.GrepContext:
		return ev.Summary == nil
	case proto.GrepEnd:
		return ev.Summary != nil
	}
	return false
}
