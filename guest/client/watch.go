package client

import (
	"bufio"
	"context"
	"encoding/json"
	"io"

	"berth/guest/wire"
	"berth/proto"
)

// maxFileEvent is more than the length of any event of a watch, in bytes: it has at most three paths, and each byte of
// one may take six in JSON.
const maxFileEvent = 6*4*longestPath + 4096

// A Watch has the events of a directory.
type Watch struct {
	d     *download
	lines *bufio.Scanner
}

// Watch follows the changes in a directory, and of those below it if recursive is set. entries has events describe
// their file. The caller must close the watch; ctx ends it too.
func (c *Client) Watch(ctx context.Context, as, dir string, recursive, entries bool) (*Watch, error) {
	d, err := c.download(ctx, &wire.Request{Op: wire.OpWatch, As: as, Path: []byte(dir), Recursive: recursive,
		Entries: entries}, nil)
	if err != nil {
		return nil, err
	}
	d.left = -1
	w := &Watch{d: d, lines: bufio.NewScanner(d)}
	w.lines.Buffer(make([]byte, 0, 4096), maxFileEvent)
	return w, nil
}

// Next waits for the next event. The error is io.EOF when the directory is gone.
func (w *Watch) Next() (ev proto.FileEvent, err error) {
	for w.lines.Scan() {
		if len(w.lines.Bytes()) == 0 {
			continue // the guest shows that it is there
		}
		if err := json.Unmarshal(w.lines.Bytes(), &ev); err != nil || !plausible(&ev) {
			return proto.FileEvent{}, wire.Fail(w.d.w, wire.ErrFrame)
		}
		return ev, nil
	}
	if err = w.lines.Err(); err == nil {
		err = io.EOF
	}
	return ev, err
}

// plausible reports whether a guest may send an event.
func plausible(ev *proto.FileEvent) bool {
	if len(ev.Path) > longestPath || len(ev.Name) > longestPath {
		return false
	}
	if ev.Entry != nil {
		if _, ok := textOf(ev.Entry); !ok {
			return false
		}
	}
	switch ev.Type {
	case proto.FileCreated, proto.FileWritten, proto.FileRemoved, proto.FileRenamed, proto.FileAttributes,
		proto.FileOverflow:
		return true
	}
	return false
}

// Close ends the watch.
func (w *Watch) Close() error {
	if w.d.w != nil {
		w.d.w.Broken = true // the guest ends the connection, too
	}
	return w.d.Close()
}
