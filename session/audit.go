package session

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"berth/proto"
	"berth/proto/span"
	"berth/session/secrets"
)

// Audit actions of the core, whatever caused them. The HTTP server has more, and the failures of these.
const (
	actionCreate    = "container.create"
	actionStart     = "container.start"
	actionStop      = "container.stop"
	actionPause     = "container.pause"
	actionResume    = "container.resume"
	actionExpire    = "container.expire"
	actionReset     = "container.reset"
	actionChange    = "container.change"
	actionRestore   = "container.restore"
	actionFork      = "container.fork"
	actionDelete    = "container.delete"
	actionExecBegin = "exec.begin"
	actionExecEnd   = "exec.end"

	actionSnapshot       = "snapshot.create"
	actionSnapshotDelete = "snapshot.delete"
)

// auditEntryFor returns an audit entry with the caller and request of ctx.
func auditEntryFor(ctx context.Context) proto.AuditEntry {
	return proto.AuditEntry{Actor: proto.Actor(ctx), RequestID: proto.RequestIDOf(ctx), Outcome: proto.AuditOK}
}

// withCallerOf returns a context based on core, which outlives the request, with the caller, request and span of ctx.
func withCallerOf(core, ctx context.Context) context.Context {
	return span.Carry(proto.WithRequestID(proto.WithCaller(core, proto.CallerOf(ctx)), proto.RequestIDOf(ctx)), ctx)
}

// auditAction audits an action on the session.
func (s *Session) auditAction(ctx context.Context, action, note string) {
	s.auditItem(ctx, action, "", note)
}

// auditItem audits an action on the session that has to do with another item.
func (s *Session) auditItem(ctx context.Context, action, item, note string) {
	e := auditEntryFor(ctx)
	e.Act, e.Owner, e.ContainerID, e.Generation, e.Note = action, s.owner, s.id, s.record().Generation, note
	e.Item = item
	s.core.cfg.Audit(e)
}

// auditGeneration audits the start of a generation.
func (s *Session) auditGeneration(ctx context.Context) {
	r := s.record()
	s.auditAction(ctx, actionStart, "generation "+strconv.FormatInt(r.Generation, 10)+", image "+r.Image+", class "+
		string(r.Class))
}

// maxAudited bounds the command in an audit entry, and all its produced paths together, in bytes.
const maxAudited = 16 << 10

// auditExec audits the start or the end of the command.
func (e *Exec) auditExec(action string, info proto.Exec, made Produced) {
	entry := e.by
	if entry.Actor == "" { // started under another daemon
		entry = proto.AuditEntry{Actor: cmp.Or(e.key, proto.ActorReconcile), Outcome: proto.AuditOK}
	}
	command := cmp.Or(info.Command, strings.Join(info.Argv, " "))
	x := proto.AuditExec{JobID: info.JobID, User: info.User, PID: info.PID,
		Command:     secrets.RedactCut(command, maxAudited),
		StdoutBytes: info.StdoutBytes, StderrBytes: info.StderrBytes,
		Produced: e.redactor.HideAll(secrets.SomeOf(made.Paths, maxAudited)), FileIDs: made.FileIDs,
	}
	if info.End != nil {
		x.Reason, x.ReturnCode, x.CPUSeconds, x.Seconds = info.End.Reason, info.End.ReturnCode, info.End.CPUSeconds,
			info.Duration(time.Time{}).Seconds()
	}
	entry.Act, entry.Owner, entry.ContainerID, entry.Generation = action, e.s.owner, e.s.id, info.Generation
	entry.ExecID, entry.Exec = e.id, &x
	e.s.core.cfg.Audit(entry)
}

// AuditText audits an action of a running command, such as a cell of an interpreter. It hides secrets in text.
func (e *Exec) AuditText(ctx context.Context, action, text string) {
	entry, info := auditEntryFor(ctx), e.Info()
	entry.Act, entry.Owner, entry.ContainerID, entry.ExecID = action, e.s.owner, e.s.id, e.id
	entry.Exec = &proto.AuditExec{JobID: info.JobID, User: info.User, Command: secrets.RedactCut(e.redactor.Hide(text),
		maxAudited)}
	e.s.core.cfg.Audit(entry)
}

// AuditCall audits the outcome of a tool call.
func (s *Session) AuditCall(entry proto.AuditEntry) {
	entry.Owner, entry.ContainerID = s.owner, s.id
	entry.Note = s.redactor.Hide(entry.Note)
	s.core.cfg.Audit(entry)
}
