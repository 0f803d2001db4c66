package native

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"berth/api"
	"berth/api/jsonlines"
	"berth/proto"
	"berth/state/audit"
)

func (e *edge) auditHead(*call) (proto.AuditHead, error) {
	seq, hash := e.Audit.Head()
	return proto.AuditHead{Seq: seq, Hash: hash}, nil
}

// Only admins reach this: the owner in the filter is a choice of the caller, not a bound.
func (e *edge) readAudit(c *call) (any, error) {
	f := audit.Filter{
		Container: c.query.Get("container"), Actor: c.query.Get("actor"), Owner: c.query.Get("owner"),
		Action: c.query.Get("act"), Since: c.moment("since"), Until: c.moment("until"), Last: int(c.whole("last")),
	}
	// Check before writing: after the first byte of a 200 no error can be sent.
	after, err := c.lastEntry()
	if err != nil {
		return nil, err
	}
	if c.wantsEvents() {
		return nil, e.followAudit(c, f, after)
	}
	rawBody(c.w.Header(), jsonlines.Media)
	c.w.WriteHeader(http.StatusOK)
	return nil, e.Audit.Read(c.ctx(), f, false, func(line []byte) error { _, err := c.Write(line); return err })
}

// followAudit runs until the client or the daemon leaves, which is a failure of neither. A header asks for it, not a
// query key, so that a fuzzer of the documented query does not hang.
func (e *edge) followAudit(c *call, f audit.Filter, after int64) error {
	if after > 0 {
		f.Last = 0 // last chose the start; a reconnecting client continues after its last event
	}
	es := api.NewEventStream(c.w, c.r)
	defer es.Close()
	err := e.Audit.Read(es.Context(), f, true, func(line []byte) error {
		var entry struct{ Seq int64 }
		// The filter selects by time, not by number, so entries that the client has are read again and skipped here.
		if err := json.Unmarshal(line, &entry); err != nil || entry.Seq <= after {
			return err
		}
		return es.SendRaw(strconv.FormatInt(entry.Seq, 10), "", bytes.TrimSuffix(line, []byte("\n")))
	})
	if api.IsDraining(c.ctx()) {
		return nil
	}
	return err
}

// lastEntry returns the number of the last entry that a reconnecting client has, or 0.
func (c *call) lastEntry() (int64, error) {
	last := c.r.Header.Get("Last-Event-ID")
	if last == "" {
		return 0, nil
	}
	// 63 bits fit an int64, and ParseUint refuses a sign
	n, err := strconv.ParseUint(last, 10, 63)
	if err != nil {
		return 0, badEventID(last)
	}
	return int64(n), nil
}
