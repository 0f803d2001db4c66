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

// An AuditFilter chooses entries of the audit log. Empty fields choose all.
type AuditFilter struct {
	Container, Actor, Owner, Act string
	Since, Until                 time.Time
	Last                         int // of those that the rest chooses
}

func (f AuditFilter) query() url.Values {
	// Keys are set only if they have a value: an older daemon refuses keys that it does not know,
	// even empty ones.
	q := url.Values{}
	for name, v := range map[string]string{"container": f.Container, "actor": f.Actor, "owner": f.Owner, "act": f.Act} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for name, t := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !t.IsZero() {
			// With nanoseconds, as the log has them: cut to seconds, "since" would show entries
			// from before it.
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if f.Last > 0 {
		q.Set("last", strconv.Itoa(f.Last))
	}
	return q
}

// maxAuditLine is longer than any line of the log, in bytes.
// A scanner refuses longer lines with an error, and allocates only what lines really have.
const maxAuditLine = 2 << 20

// Audit calls fn with each line of the audit log that f chooses, as it is in the log but for the line feed. Only an
// admin's key may.
func (c *Client) Audit(ctx context.Context, f AuditFilter, fn func(line []byte) error) error {
	return c.auditLines(ctx, f, nil, fn)
}

// FollowAudit is Audit that goes on with what is added, until ctx ends or the daemon does, which is
// proto.Unavailable. It begins behind the entry with the ID after, unless that is empty, and returns the ID of the
// last one that fn had.
func (c *Client) FollowAudit(ctx context.Context, f AuditFilter, after string, fn func(line []byte) error) (last string,
	err error) {
	header := map[string]string{"Accept": "text/event-stream"}
	if after != "" {
		header["Last-Event-ID"] = after
	}
	id := after // of the event that is being read
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
	if err == nil { // a daemon that is shutting down says goodbye so
		err = c.broken(ctx, io.EOF)
	}
	return last, err
}

// auditLines asks for the log, and calls fn with each line of the answer, which is valid until fn returns.
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

// AuditHead is the end of the audit log's chain.
func (c *Client) AuditHead(ctx context.Context) (head proto.AuditHead, err error) {
	err = c.get(ctx, at("audit", "head"), nil, &head)
	return head, err
}
