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

// An Auditor writes the audit log.
type Auditor interface {
	Ready() error            // an error if the log cannot be written; then no audited request is served
	Append(proto.AuditEntry) // returns once the entry is written
}

// An auditedAction is the entry that the audit log gets for a request.
type auditedAction struct {
	entry   proto.AuditEntry
	covered bool
	write   func() // writes the entry, once
}

// name returns the action name of a request to this route, or "" if such requests are not audited. Routes that only
// read are not audited unless they have an Act.
func (r Route) name() string {
	if r.Act != "" || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r.Act
	}
	return r.Method + " " + r.Pattern
}

type auditedActionKey struct{}

// startAudit prepares the audit entry of a request. It refuses the request if the audit log cannot be written.
func (s *Server) startAudit(x *exchange, route Route, c Caller) error {
	name := route.name()
	if s.cfg.Audit == nil || route.Public || name == "" {
		return nil
	}
	if err := s.cfg.Audit.Ready(); err != nil {
		return err
	}
	x.action = &auditedAction{covered: route.Covered, write: x.writeAudit,
		entry: proto.AuditEntry{Act: name, Actor: c.KeyID,
			Owner: c.Owner, RequestID: x.id, Outcome: proto.AuditOK}}
	x.action.addFromPath(x.r)
	x.r = x.r.WithContext(context.WithValue(x.r.Context(), auditedActionKey{}, x.action))
	return nil
}

// addFromPath adds what the wildcards of the path name.
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

// Note adds an item to the audit entry of the request: what it made, or what its body names. The goroutine of the
// request calls it. For requests that are not audited it does nothing.
func Note(ctx context.Context, item string) {
	if d, ok := ctx.Value(auditedActionKey{}).(*auditedAction); ok && item != "" {
		d.addItem(item)
	}
}

// NoteContainer sets the container of the request's audit entry, where its path does not name one.
func NoteContainer(ctx context.Context, id string) {
	if d, ok := ctx.Value(auditedActionKey{}).(*auditedAction); ok {
		d.entry.ContainerID = id
	}
}

// NoteStarted writes the audit entry of the request now. It is for answers that may take days: the entry exists even
// if the daemon is killed meanwhile. For actions that the core audits it does nothing, since only failures are left
// to log.
func NoteStarted(ctx context.Context) {
	if d, ok := ctx.Value(auditedActionKey{}).(*auditedAction); ok && !d.covered {
		d.write()
	}
}

// finishAudit writes the audit entry of a request that has ended. For actions that the core audits it only writes
// failures.
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

// A refusalLimiter limits how many audit entries wrong keys can cause.
type refusalLimiter struct {
	limit   *rate.Limiter
	dropped atomic.Int64 // refused since the last entry
}

// Refused keys that get an entry of their own: this many per second, and this many at once. The others are counted.
const (
	refusedPerSecond = 1
	refusedAtOnce    = 20
)

// auditRefusedKey logs a request without a valid key.
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

// NoteFailure records a failure that is reported inside an answer whose status was already sent.
func NoteFailure(ctx context.Context, err error) {
	if d, ok := ctx.Value(auditedActionKey{}).(*auditedAction); ok {
		d.entry.Outcome = string(proto.CodeOf(err))
	}
}
