package native

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
	"berth/state/audit"
)

// auditRows are for admins: the log tells of every owner.
// Without a log in the configuration there are no such routes, and the document does not promise
// them.
func (e *edge) auditRows() []row {
	if e.Audit == nil {
		return nil
	}
	const tag = "audit"
	admins := append([]int{403}, basic...)
	return []row{
		{"GET", "/v1/audit", api.None, e.readAudit, openapi.Operation{ID: "readAudit", Tag: tag, Summary: "Read the audit log, oldest entry first.",
			Admin: true,
			Description: "Each line of the answer is an entry, byte for byte as it is in the log, so that hashes can be " +
				"checked. With Accept: text/event-stream it goes on with what is added: " +
				"the data of each event is an entry, and its ID the entry's number, for Last-Event-ID.",
			Query: []openapi.Param{
				{Name: "container", Description: "Only what was done to this container."},
				{Name: "actor", Description: "Only what this API key, by its ID, or this part of the daemon did."},
				{Name: "owner", Description: "Only what concerns this owner."},
				{Name: "act", Description: "Only this act, such as exec.end; with a dot at the end, all that begin so: exec."},
				{Name: "since", Kind: openapi.Date, Description: "Only entries from this time on, RFC 3339."},
				{Name: "until", Kind: openapi.Date, Description: "Only entries before this time, RFC 3339."},
				{Name: "last", Kind: openapi.Whole, Max: 100_000, Description: "Only the last so many of them; 0 is all. With " +
					"Last-Event-ID it does not count."},
			}, Header: []openapi.Param{{Name: "Last-Event-ID", Pattern: "^[0-9]{0,18}$", Description: "The ID of the last event a " +
				"client has; the stream goes on behind it."}},
			Answers: map[int][]openapi.Content{http.StatusOK: {{Media: lineType, Of: proto.AuditEntry{}},
				{Media: eventType, Of: proto.AuditEntry{}}}}, Fails: admins}},
		{"GET", "/v1/audit/head", api.None, e.auditHead, openapi.Operation{ID: "auditHead", Tag: tag, Summary: "The end of the audit log's " +
			"chain, to note elsewhere.", Admin: true,
			Answers: ok(proto.AuditHead{}), Fails: admins}},
	}
}

func (e *edge) auditHead(c *call) error {
	seq, hash := e.Audit.Head()
	return c.json(http.StatusOK, proto.AuditHead{Seq: seq, Hash: hash})
}

// The owner in the filter is a choice and no bound, which is why the rows are for admins.
func (e *edge) readAudit(c *call) error {
	f := audit.Filter{
		Container: c.query.Get("container"), Actor: c.query.Get("actor"), Owner: c.query.Get("owner"), Act: c.query.Get(
			"act"),
		Since: c.moment("since"), Until: c.moment("until"), Last: int(c.whole("last")),
	}
	// Before anything is written: behind the first byte of a 200 no error can be told.
	after, err := c.lastEntry()
	if err != nil {
		return err
	}
	if c.wantsEvents() {
		return e.followAudit(c, f, after)
	}
	rawBody(c.w.Header(), lineType)
	c.w.WriteHeader(http.StatusOK)
	return e.Audit.Read(c.r.Context(), f, false, func(line []byte) error { _, err := c.Write(line); return err })
}

// followAudit goes on until the client or the daemon leaves, which is no failure of either. It is asked for by a
// header and not by a key of the query, so that whoever tries what the document says of the query comes to an end.
func (e *edge) followAudit(c *call, f audit.Filter, after int64) error {
	if after > 0 {
		f.Last = 0 // it chose where to begin; a client that comes back goes on from its last event
	}
	es := api.NewEventStream(c.w, c.r)
	defer es.Close()
	err := e.Audit.Read(es.Context(), f, true, func(line []byte) error {
		var entry struct{ Seq int64 }
		// The filter chooses by time and not by number, so what the client has already is read
		// again and left out here.
		if err := json.Unmarshal(line, &entry); err != nil || entry.Seq <= after {
			return err
		}
		return es.SendRaw(strconv.FormatInt(entry.Seq, 10), "", bytes.TrimSuffix(line, []byte("\n")))
	})
	if draining(c.r.Context()) {
		return nil
	}
	return err
}

// lastEntry is the number of the last entry that a client which comes back has, or 0.
func (c *call) lastEntry() (int64, error) {
	last := c.r.Header.Get("Last-Event-ID")
	if last == "" {
		return 0, nil
	}
	// 63 bits, so that it fits an int64 and a sign is refused.
	n, err := strconv.ParseUint(last, 10, 63)
	if err != nil {
		return 0, invalid("Last-Event-ID", "Last-Event-ID %.80q is not the ID of an event of this stream; leave it "+
			"out to begin at the start.", last)
	}
	return int64(n), nil
}
