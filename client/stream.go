package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"berth/proto"
	"berth/proto/sse"
)

// Stream runs a command and calls each with its events as they come; the last is its exit. With Config.Wait the stream
// goes on where its connection broke, as while the daemon restarts: the command runs once, and no output is missing or
// comes twice. An error of each ends the stream and is returned. The daemon ends the command if ctx ends.
func (c *Client) Stream(ctx context.Context, container string, cmd proto.Cmd, each func(proto.Event) error) (
	proto.ExecResult, error) {
	cmd = c.Returning(cmd)
	f := &follower{c: c, container: container, each: each, first: request{method: http.MethodPost,
		path: at("containers", container, "exec"), body: cmd, again: cmd.IdempotencyKey != ""}}
	return f.follow(ctx)
}

// Follow calls each with the events of a command from its beginning to its exit, as Stream does.
func (c *Client) Follow(ctx context.Context, container, exec string, each func(proto.Event) error) (proto.ExecResult,
	error) {
	f := &follower{c: c, container: container, exec: exec, each: each}
	return f.follow(ctx)
}

// A follower reads the events of one command over any number of connections.
type follower struct {
	c         *Client
	container string
	exec      string  // ID; "": not known yet
	first     request // starts the command; sent while exec is not known
	last      string  // position of the last event
	each      func(proto.Event) error

	heard  bool // the last connection brought an event
	result proto.ExecResult
}

// A stopError is an error of follower.each. It hides the error, which may look like one of the connection.
type stopError struct{ err error }

func (e stopError) Error() string { return e.err.Error() }

// follow reads until the exit. Each event gives the daemon its time to come back anew.
func (f *follower) follow(ctx context.Context) (proto.ExecResult, error) {
	for {
		err := f.c.whileAway(ctx, true, func() error { return f.read(ctx) })
		var stop stopError
		if errors.As(err, &stop) {
			return f.result, stop.err
		}
		again := f.heard && ctx.Err() == nil && f.c.cfg.Wait > 0 && away(err, true)
		if err == nil || !again {
			return f.result, err
		}
	}
}

// read reads the events of one connection.
func (f *follower) read(ctx context.Context) error {
	f.heard = false
	r := f.first
	if f.exec != "" {
		r = request{method: http.MethodGet, path: at("containers", f.container, "execs", f.exec, "events")}
	}
	r.header = map[string]string{"Accept": sse.ContentType}
	if f.last != "" {
		r.header["Last-Event-ID"] = f.last
	}
	res, err := f.c.sendOnce(ctx, r)
	if err != nil {
		return f.unlessSent(r, err)
	}
	defer res.Body.Close()
	events := sse.NewReader(res.Body, sse.Options{MaxEvent: maxProgress})
	for {
		raw, err := events.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return f.unlessSent(r, f.c.broken(ctx, err))
		}
		var ev proto.Event
		if err := json.Unmarshal(raw.Data, &ev); err != nil {
			return stopError{err}
		}
		f.heard, f.last = true, raw.ID
		if ev.Exec != nil {
			f.exec = ev.Exec.ID
		}
		if err := f.each(ev); err != nil {
			return stopError{err}
		}
		if ev.Type == proto.EventExit && ev.Result != nil {
			f.result = *ev.Result
			return nil
		}
	}
}

// unlessSent returns the error of a request. One that may have begun a command without an idempotency key must not be
// sent again, so its broken connection is final.
func (f *follower) unlessSent(r request, err error) error {
	var broken brokenError
	if f.exec == "" && !r.repeatable() && errors.As(err, &broken) {
		return stopError{err}
	}
	return err
}
