package native

import (
	"net/http"
	"time"

	"berth/audit"
	"berth/proto"
)

// auditRows are for admins: the log tells of every owner.
func (e *edge) auditRows() []row {
	if e.Audit == nil {
		return nil
	}
	const tag = "audit"
	admins := append([]int{403}, basic...)
	return []row{
		{"GET", "/v1/audit", e.readAudit, op{id: "readAudit", tag: tag, does: "Read the audit log, oldest entry first.", admin: true,
			more: "Each line of the answer is an entry, byte for byte as it is in the log, so that hashes can be checked.",
			query: []param{
				{name: "container", does: "Only what was done to this container."},
				{name: "actor", does: "Only what this API key, by its ID, or this part of the daemon did."},
				{name: "owner", does: "Only what concerns this owner."},
				{name: "act", does: "Only this act, such as exec.end; with a dot at the end, all that begin so: exec."},
				{name: "since", does: "Only entries from this time on, RFC 3339."},
				{name: "until", does: "Only entries before this time, RFC 3339."},
				{name: "last", kind: whole, max: 100_000, does: "Only the last so many of them; 0 is all."},
				{name: "follow", kind: flag, does: "Go on with what is added."},
			},
			answers: map[int][]content{http.StatusOK: {{media: lineType, of: proto.AuditEntry{}}}}, fails: admins}},
		{"GET", "/v1/audit/head", e.auditHead, op{id: "auditHead", tag: tag, does: "The end of the audit log's chain, to note elsewhere.", admin: true,
			answers: ok(proto.AuditHead{}), fails: admins}},
	}
}

func (e *edge) auditHead(c *call) error {
	seq, hash := e.Audit.Head()
	return c.json(http.StatusOK, proto.AuditHead{Seq: seq, Hash: hash})
}

func (e *edge) readAudit(c *call) error {
	f := audit.Filter{Container: c.query.Get("container"), Actor: c.query.Get("actor"), Owner: c.query.Get("owner"), Act: c.query.Get("act"), Last: int(c.whole("last"))}
	for name, t := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		text := c.query.Get(name)
		if text == "" {
			continue
		}
		var err error
		if *t, err = time.Parse(time.RFC3339, text); err != nil {
			return proto.Errorf(proto.InvalidArgument, "", name, "%s must be a time such as 2006-01-02T15:04:05Z", name)
		}
	}
	rawBody(c.w.Header(), lineType)
	c.w.WriteHeader(http.StatusOK)
	if !c.flag("follow") {
		return e.Audit.Read(c.r.Context(), f, false, func(line []byte) error { _, err := c.Write(line); return err })
	}
	return e.followAudit(c, f)
}

// followAudit goes on until the client or the daemon leaves, which is no failure of either.
func (e *edge) followAudit(c *call, f audit.Filter) error {
	ctx, stop := untilDrain(c.r.Context())
	defer stop()
	rc := http.NewResponseController(c.w)
	if err := rc.Flush(); err != nil {
		return err
	}
	err := e.Audit.Read(ctx, f, true, func(line []byte) error {
		if _, err := c.Write(line); err != nil {
			return err
		}
		return rc.Flush()
	})
	if ctx.Err() != nil && c.r.Context().Err() == nil {
		return nil
	}
	return err
}
