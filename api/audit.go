package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"berth/proto"

	"golang.org/x/time/rate"
)

// An Auditor keeps the log of who did what.
type Auditor interface {
	Ready() error            // why it cannot be written, if so; then nothing is done that would have to be in it
	Append(proto.AuditEntry) // returns once the entry is written
}

// A deed is what the audit log will say of a request.
type auditedAction struct {
	entry   proto.AuditEntry
	covered bool
	write   func() // puts it into the log, once
}

// name is what the audit log calls a request to this route, or empty if it is not in there: what only looks is not,
// unless it is said to.
func (r Route) name() string {
	if r.Act != "" || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r.Act
	}
	return r.Method + " " + r.Pattern
}

type auditedActionKey struct{}

// startAudit refuses what could not be put into the audit log, and notes what will be.
func (s *Server) startAudit(x *exchange, route Route, c Caller) error {
	name := route.name()
	if s.cfg.Audit == nil || route.Public || name == "" {
		return nil
	}
	if err := s.cfg.Audit.Ready(); err != nil {
		return err
	}
	x.action = &auditedAction{covered: route.Covered, write: x.writeAudit, entry: proto.AuditEntry{Act: name, Actor: c.KeyID,
		Owner: c.Owner, RequestID: x.id, Outcome: proto.AuditOK}}
	x.action.addFromPath(x.r)
	x.r = x.r.WithContext(context.WithValue(x.r.Context(), auditedActionKey{}, x.action))
	return nil
}

// addFromPath notes what the path names.
func (d *auditedAction) addFromPath(r *http.Request) {
	for _, name := range Wildcards(r.Pattern) {
		v := r.PathValue(name)
		switch {
		case proto.ValidID(proto.ContainerPrefix, v):
			d.entry.ContainerID = v
		case proto.ValidID(proto.ExecPrefix, v):
			d.entry.ExecID = v
		default:
			d.addItem(v)
		}
	}
}

func (d *auditedAction) addItem(item string) {
	d.entry.Item = strings.TrimPrefix(d.entry.Item+" "+item, " ")
}

// Note has the audit log say what else a request was about: what it made, or what its body names. It is called by the
// request's own goroutine. Outside of requests that are audited it does nothing.
func Note(ctx context.Context, item string) {
	if d, ok := ctx.Value(auditedActionKey{}).(*auditedAction); ok && item != "" {
		d.addItem(item)
	}
}

// NoteStarted has the audit log say now what a request takes out, where its answer may take days: a daemon that is killed
// meanwhile has said so. For requests that the core audits it does nothing, since failures are all that is left to
// say of those.
func NoteStarted(ctx context.Context) {
	if d, ok := ctx.Value(auditedActionKey{}).(*auditedAction); ok && !d.covered {
		d.write()
	}
}

// finishAudit writes down what a request came to. Of what the core tells itself when it is done, only failures are left to
// say.
func (s *Server) finishAudit(x *exchange) {
	d := x.action
	if d == nil {
		return
	}
	x.action = nil // once
	if x.err != nil {
		d.entry.Outcome = string(proto.CodeOf(x.err))
	} else if d.covered {
		return
	}
	d.entry.Item = s.hide(x, d.entry.Item)
	s.cfg.Audit.Append(d.entry)
}

// A gatekeeper bounds how many entries wrong keys can make.
type refusalLimiter struct {
	limit   *rate.Limiter
	dropped atomic.Int64 // refused since the last entry
}

// Wrong keys that are told of one by one: so many per second, and so many at once. The others are counted.
const (
	refusedPerSecond = 1
	refusedAtOnce    = 20
)

// auditRefusedKey writes down that somebody came without a valid key.
func (s *Server) auditRefusedKey(x *exchange, err error) {
	if s.cfg.Audit == nil || proto.CodeOf(err) != proto.Unauthenticated {
		return
	}
	if !s.refusals.limit.Allow() {
		s.refusals.dropped.Add(1)
		return
	}
	host, _, _ := net.SplitHostPort(x.r.RemoteAddr)
	note := "from " + host
	if n := s.refusals.dropped.Swap(0); n > 0 {
		note += fmt.Sprintf("; %d more since the last entry", n)
	}
	s.cfg.Audit.Append(proto.AuditEntry{Act: "auth.refuse", Outcome: string(proto.Unauthenticated),
		Actor: proto.ActorUnknown, RequestID: x.id, Item: x.route(), Note: note})
}

// NoteFailure is for what fails after the answer has begun, and is told in it: the request itself went well.
func NoteFailure(ctx context.Context, err error) {
	if d, ok := ctx.Value(auditedActionKey{}).(*auditedAction); ok {
		d.entry.Outcome = string(proto.CodeOf(err))
	}
}
