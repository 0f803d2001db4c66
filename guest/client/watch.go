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

// Events are a body of the guest: lines of JSON. A guest that has nothing to tell sends empty lines.
type Events[T any] struct {
	d         *download
	lines     *bufio.Scanner
	plausible func(*T) bool
	last      bool // the guest closes the connection behind them, so it cannot carry another request
}

// A Watch has the events of a directory. Its Next returns io.EOF when the directory is gone.
type Watch = Events[proto.FileEvent]

// Watch follows the changes in a directory, and of those below it if recursive is set. entries has events describe
// their file. The caller must close the watch; ctx ends it too.
func (c *Client) Watch(ctx context.Context, as, dir string, recursive, entries bool) (*Watch, error) {
	e, err := openEvents(ctx, c, &wire.Request{Op: wire.OpWatch, As: as, Path: []byte(dir), Recursive: recursive,
		Entries: entries}, maxFileEvent, plausible)
	if err != nil {
		return nil, err
	}
	e.last = true
	return e, nil
}

// openEvents sends a request that is answered with events of at most most bytes.
func openEvents[T any](ctx context.Context, c *Client, req *wire.Request, most int, plausible func(*T) bool) (
	*Events[T], error) {
	d, err := c.download(ctx, req, nil)
	if err != nil {
		return nil, err
	}
	return newEvents(d, most, plausible), nil
}

// newEvents reads a body as events.
func newEvents[T any](d *download, most int, plausible func(*T) bool) *Events[T] {
	d.left = -1
	e := &Events[T]{d: d, lines: bufio.NewScanner(d), plausible: plausible}
	e.lines.Buffer(make([]byte, 0, 4096), most)
	return e
}

// WatchPorts follows what listens in the container: the first list comes at once, and another one after each change.
// Next returns io.EOF when no process is left that could listen. The caller must close the watch; ctx ends it too.
func (c *Client) WatchPorts(ctx context.Context) (*Events[wire.PortList], error) {
	w, err := c.connect(ctx) // a new one: idle connections are for commands
	if err != nil {
		return nil, err
	}
	d, err := c.downloadOn(ctx, w, &wire.Request{Op: wire.OpWatchPorts}, nil)
	if err != nil {
		return nil, err
	}
	e := newEvents(d, wire.MaxWatchedPorts*(2*6*maxProgram+256), boundPorts)
	e.last = true
	return e, nil
}

// boundPorts cuts a list of the guest to what it may be.
func boundPorts(list *wire.PortList) bool {
	list.Ports = cutPorts(list.Ports, wire.MaxWatchedPorts)
	return true
}

// Next waits for the next event. The error is io.EOF at the end.
func (e *Events[T]) Next() (ev T, err error) {
	var none T
	for e.lines.Scan() {
		if len(e.lines.Bytes()) == 0 {
			continue // the guest shows that it is there
		}
		if err := json.Unmarshal(e.lines.Bytes(), &ev); err != nil || !e.plausible(&ev) {
			return none, wire.Fail(e.d.w, wire.ErrFrame)
		}
		return ev, nil
	}
	if err = e.lines.Err(); err == nil {
		err = io.EOF
	}
	return ev, err
}

// Close ends the events. The guest ends the connection, too, unless they have ended already.
func (e *Events[T]) Close() error {
	if e.d.w != nil && (e.last || e.d.err != io.EOF) {
		e.d.w.Broken = true
	}
	return e.d.Close()
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
