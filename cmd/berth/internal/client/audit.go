package client

import (
	"bufio"
	"bytes"
	"context"
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

// Audit calls fn with each line of the audit log that f chooses, as it is in the log but for the line feed. With follow it goes on with
// what is added, until ctx ends. Only an admin's key may.
func (c *Client) Audit(ctx context.Context, f AuditFilter, follow bool, fn func(line []byte) error) error {
	r := request{method: http.MethodGet, path: at("audit"), query: f.query()}
	if follow {
		r.header = map[string]string{"Accept": "text/event-stream"}
	}
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		line, isData := lines.Bytes(), true
		if follow { // beside it there are IDs and heartbeats
			line, isData = bytes.CutPrefix(line, []byte("data: "))
		}
		if !isData {
			continue
		}
		// The line is the scanner's and valid until fn returns.
		if err := fn(line); err != nil {
			return err
		}
	}
	return lines.Err()
}

// AuditHead is the end of the audit log's chain.
func (c *Client) AuditHead(ctx context.Context) (head proto.AuditHead, err error) {
	err = c.get(ctx, at("audit", "head"), nil, &head)
	return head, err
}
