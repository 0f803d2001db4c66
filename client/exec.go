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

// pollSeconds is how long one request waits for an exec to end. Proxies end requests that are silent for longer.
const pollSeconds = 30

// Launch starts a background command.
func (c *Client) Launch(ctx context.Context, container string, cmd proto.Cmd) (proto.Exec, error) {
	cmd.Background, cmd.IdempotencyKey = true, c.once(cmd.IdempotencyKey)
	return submit[proto.Exec](ctx, c, at("containers", container, "exec"), cmd, cmd.IdempotencyKey != "")
}

// reconnectSeconds is how long a command goes on without its client, which connects again as soon as there is a daemon.
const reconnectSeconds = 10

// Returning returns a command that belongs to its client as one that goes on while the client connects again, as while
// the daemon restarts. Run does that by itself. To be sent again, it gets an idempotency key. Without Config.Wait, and
// if the command goes on without its client in any case, it stays as it is.
func (c *Client) Returning(cmd proto.Cmd) proto.Cmd {
	if c.cfg.Wait > 0 && !cmd.Outlives() {
		cmd.ReconnectSeconds, cmd.IdempotencyKey = reconnectSeconds, c.once("")
	}
	return cmd
}

// Run runs a command and waits for its end in one request. The daemon ends the command if ctx ends or the connection
// breaks; with Config.Wait some seconds later, unless the client comes back.
func (c *Client) Run(ctx context.Context, container string, cmd proto.Cmd) (proto.ExecResult, error) {
	cmd = c.Returning(cmd)
	return submit[proto.ExecResult](ctx, c, at("containers", container, "exec"), cmd, cmd.IdempotencyKey != "")
}

// Execs lists a container's running and remembered commands.
func (c *Client) Execs(ctx context.Context, container string) ([]proto.Exec, error) {
	return list[proto.Exec](ctx, c, at("containers", container, "execs"), nil)
}

// Exec returns the description of a command.
func (c *Client) Exec(ctx context.Context, container, exec string) (proto.Exec, error) {
	return get[proto.Exec](ctx, c, at("containers", container, "execs", exec), nil)
}

// Wait waits for a command's end without a time limit; use ctx to set one. Status 202 means that the command still
// runs.
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

// Signal sends a signal, given by name, to a command.
func (c *Client) Signal(ctx context.Context, container, exec, signal string) (proto.Exec, error) {
	body := struct {
		Signal string `json:"signal"`
	}{signal}
	return post[proto.Exec](ctx, c, at("containers", container, "execs", exec, "signal"), body)
}

// stdinPiece is how much standard input one request carries, in bytes.
const stdinPiece = 256 << 10

// Stdin sends all of r to a command's standard input and then closes it. Each piece is one request, answered once the
// command has read it. So a pipe that pauses for hours blocks no request, and a command that does not read uses no
// memory of the daemon.
func (c *Client) Stdin(ctx context.Context, container, exec string, r io.Reader) error {
	buf := make([]byte, stdinPiece)
	for {
		// Read and not ReadFull: input from a terminal or a slow pipe is sent at once.
		n, err := r.Read(buf)
		if n > 0 {
			if err := c.stdin(ctx, container, exec, buf[:n], false); err != nil {
				return err
			}
		}
		switch {
		// A separate request with an empty body: the last piece was sent before the end was known.
		case err == io.EOF:
			return c.stdin(ctx, container, exec, nil, true)
		case err != nil:
			return err
		}
	}
}

// stdin sends one piece, and closes the input if end is set. It retries a piece that exceeds the key's rate limit:
// the daemon refused it before reading any of it.
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
		// a proxy's refusal has no delay
		case <-time.After(time.Duration(max(1, proto.AsError(err).RetryAfter)) * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Logs opens the output so far of one stream: "stdout", "stderr" or "both". start is the offset of its first byte. It
// is above 0 if earlier output is no longer kept.
func (c *Client) Logs(ctx context.Context, container, exec, stream string) (body io.ReadCloser, start int64,
	err error) {
	return c.TailLogs(ctx, container, exec, stream, 0)
}

// TailLogs works like Logs for the last lines of the output so far; 0 is all.
func (c *Client) TailLogs(ctx context.Context, container, exec, stream string, lines int) (body io.ReadCloser,
	start int64, err error) {
	q := url.Values{"stream": {stream}}
	if lines > 0 {
		q.Set("tail", strconv.Itoa(lines))
	}
	res, err := c.send(ctx, request{
		method: http.MethodGet, path: at("containers", container, "execs", exec, "logs"), query: q,
	})
	if err != nil {
		return nil, 0, err
	}
	start, _ = strconv.ParseInt(res.Header.Get("Berth-Log-Start"), 10, 64) // absent: 0
	return res.Body, start, nil
}

// Jobs lists the jobs in a container's workspace.
func (c *Client) Jobs(ctx context.Context, container string) ([]proto.JobSummary, error) {
	return list[proto.JobSummary](ctx, c, at("containers", container, "jobs"), nil)
}

// Manifest lists the files in a job's directory and the exec that made each.
func (c *Client) Manifest(ctx context.Context, container, job string) (proto.Manifest, error) {
	return get[proto.Manifest](ctx, c, at("containers", container, "jobs", job, "manifest"), nil)
}
