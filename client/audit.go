package client

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/proto"
)

// An AuditFilter selects entries of the audit log. An empty field matches all entries.
type AuditFilter struct {
	Container, Actor, Owner, Act string
	Since, Until                 time.Time
	Last                         int // only the newest ones of those that match
}

func (f AuditFilter) query() url.Values {
	// Empty keys are left out: an older daemon refuses keys that it does not know, even empty ones.
	q := chosen(map[string]string{"container": f.Container, "actor": f.Actor, "owner": f.Owner, "act": f.Act}, 0)
	for name, t := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !t.IsZero() {
			// With nanoseconds, as in the log. Cut to seconds, "since" would return earlier entries.
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if f.Last > 0 {
		q.Set("last", strconv.Itoa(f.Last))
	}
	return q
}

// maxAuditLine is longer than any line of the log, in bytes. The scanner allocates only what a line needs, and
// returns an error for a longer line.
const maxAuditLine = 2 << 20

// Audit calls fn with each line of the audit log that matches f, without the line feed. It needs an admin's key.
func (c *Client) Audit(ctx context.Context, f AuditFilter, fn func(line []byte) error) error {
	return c.auditLines(ctx, f, nil, fn)
}

// FollowAudit is like Audit, and continues with new entries until ctx ends. If the daemon ends, the error is
// proto.Unavailable. It starts after the entry with the ID after, if that is not empty. It returns the ID of the last
// entry that fn received.
func (c *Client) FollowAudit(ctx context.Context, f AuditFilter, after string, fn func(line []byte) error) (last string,
	err error) {
	header := map[string]string{"Accept": "text/event-stream"}
	if after != "" {
		header["Last-Event-ID"] = after
	}
	id := after // ID of the current event
	last = after
	err = c.auditLines(ctx, f, header, func(line []byte) error {
		if text, ok := bytes.CutPrefix(line, []byte("id: ")); ok {
			id = string(text)
		}
		line, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok { // a heartbeat, or between two events
			return nil
		}
		err := fn(line)
		if err == nil {
			last = id
		}
		return err
	})
	if err == nil { // how a daemon ends the answer when it shuts down
		err = c.broken(ctx, io.EOF)
	}
	return last, err
}

// auditLines requests the log and calls fn with each line of the answer. A line is valid until fn returns.
func (c *Client) auditLines(ctx context.Context, f AuditFilter, header map[string]string,
	fn func(line []byte) error) error {
	res, err := c.send(ctx, request{method: http.MethodGet, path: at("audit"), query: f.query(), header: header})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		if err := fn(lines.Bytes()); err != nil {
			return err
		}
	}
	return c.broken(ctx, lines.Err())
}

// AuditHead returns the end of the audit log's hash chain.
func (c *Client) AuditHead(ctx context.Context) (proto.AuditHead, error) {
	return get[proto.AuditHead](ctx, c, at("audit", "head"), nil)
}
