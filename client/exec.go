package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/proto"
)

// pollSeconds is how long one request waits for an exec to end; proxies cut longer silences.
const pollSeconds = 30

// Launch starts a background command.
func (c *Client) Launch(ctx context.Context, container string, cmd proto.Cmd) (e proto.Exec, err error) {
	cmd.Background = true
	err = c.post(ctx, at("containers", container, "exec"), cmd, &e)
	return e, err
}

// Run runs a command and waits for its end in the same request. It is ended when ctx is, or when the connection breaks.
func (c *Client) Run(ctx context.Context, container string, cmd proto.Cmd) (res proto.ExecResult, err error) {
	err = c.post(ctx, at("containers", container, "exec"), cmd, &res)
	return res, err
}

// Execs lists a container's running and remembered commands.
func (c *Client) Execs(ctx context.Context, container string) ([]proto.Exec, error) {
	var list struct {
		Data []proto.Exec `json:"data"`
	}
	err := c.get(ctx, at("containers", container, "execs"), nil, &list)
	return list.Data, err
}

// Exec describes one.
func (c *Client) Exec(ctx context.Context, container, exec string) (e proto.Exec, err error) {
	err = c.get(ctx, at("containers", container, "execs", exec), nil, &e)
	return e, err
}

// Wait waits for a command's end, however long that takes.
// A 202 means that it still runs. The loop has no end of its own: ctx is the caller's patience.
func (c *Client) Wait(ctx context.Context, container, exec string) (res proto.ExecResult, err error) {
	q := url.Values{"wait_seconds": {strconv.Itoa(pollSeconds)}}
	for {
		var body json.RawMessage
		status, err := c.call(ctx, request{method: http.MethodGet, path: at("containers", container, "execs", exec,
			"result"), query: q}, &body)
		if err != nil {
			return res, err
		}
		if status != http.StatusAccepted {
			return res, json.Unmarshal(body, &res)
		}
	}
}

// Signal sends a signal by name.
func (c *Client) Signal(ctx context.Context, container, exec, signal string) (e proto.Exec, err error) {
	body := struct {
		Signal string `json:"signal"`
	}{signal}
	err = c.post(ctx, at("containers", container, "execs", exec, "signal"), body, &e)
	return e, err
}

// stdinPiece is how much standard input travels in one request, in bytes.
const stdinPiece = 256 << 10

// Stdin gives all of r to a command's standard input and then ends it. It goes piece by piece, each answered once
// the command has read it: a pipe that pauses for hours stalls no request, and a command that
// does not read holds nobody's memory.
func (c *Client) Stdin(ctx context.Context, container, exec string, r io.Reader) error {
	buf := make([]byte, stdinPiece)
	for {
		// Read and not ReadFull: what a terminal or a slow pipe gives goes out at once.
		n, err := r.Read(buf)
		if n > 0 {
			if err := c.stdin(ctx, container, exec, buf[:n], false); err != nil {
				return err
			}
		}
		switch {
		// A request of its own with an empty body: the last piece was on its way before the end
		// was known.
		case err == io.EOF:
			return c.stdin(ctx, container, exec, nil, true)
		case err != nil:
			return err
		}
	}
}

// stdin sends one piece, and the end of input if end is set. What comes too soon for the key's rate is sent again in
// time: it was refused before any of it was read.
func (c *Client) stdin(ctx context.Context, container, exec string, b []byte, end bool) error {
	for {
		r := request{
			method: http.MethodPost, path: at("containers", container, "execs", exec, "stdin"), query: url.Values{},
			raw: bytes.NewReader(b), size: int64(len(b)),
		}
		if end {
			r.query.Set("close", "true")
		}
		_, err := c.call(ctx, r, nil)
		if proto.CodeOf(err) != proto.TooMany {
			return err
		}
		select {
		// a proxy's refusal names no time here
		case <-time.After(time.Duration(max(1, proto.AsError(err).RetryAfter)) * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Logs opens what one stream ("stdout", "stderr" or "both") has given so far. Start is the offset of
// its first byte: more than 0 when earlier output is no longer kept.
func (c *Client) Logs(ctx context.Context, container, exec, stream string) (body io.ReadCloser, start int64,
	err error) {
	res, err := c.send(ctx, request{
		method: http.MethodGet, path: at("containers", container, "execs", exec, "logs"), query: url.Values{
			"stream": {stream}},
	})
	if err != nil {
		return nil, 0, err
	}
	start, _ = strconv.ParseInt(res.Header.Get("Berth-Log-Start"), 10, 64) // absent: 0
	return res.Body, start, nil
}

// Jobs lists the jobs in a container's workspace.
func (c *Client) Jobs(ctx context.Context, container string) ([]proto.JobSummary, error) {
	var list struct {
		Data []proto.JobSummary `json:"data"`
	}
	err := c.get(ctx, at("containers", container, "jobs"), nil, &list)
	return list.Data, err
}

// Manifest says what a job's directory holds and who made it.
func (c *Client) Manifest(ctx context.Context, container, job string) (m proto.Manifest, err error) {
	err = c.get(ctx, at("containers", container, "jobs", job, "manifest"), nil, &m)
	return m, err
}
