package session

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"berth/proto"
	"berth/session/secrets"
)

// Acts that the core tells the audit log of, as they happen and whoever brought them about. The HTTP server has more,
// and the failures of these.
const (
	actionCreate    = "container.create"
	actionStart     = "container.start"
	actionStop      = "container.stop"
	actionPause     = "container.pause"
	actionResume    = "container.resume"
	actionExpire    = "container.expire"
	actionDelete    = "container.delete"
	actionExecBegin = "exec.begin"
	actionExecEnd   = "exec.end"

	actionEgressBegin  = "egress.begin"
	actionEgressRefuse = "egress.refuse"
	actionEgressEnd    = "egress.end"
)

// auditEntryFor is the part of an entry that says who does it.
func auditEntryFor(ctx context.Context) proto.AuditEntry {
	return proto.AuditEntry{Actor: proto.Actor(ctx), RequestID: proto.RequestIDOf(ctx), Outcome: proto.AuditOK}
}

// withCallerOf is core, which outlives the request, with ctx's caller and request.
func withCallerOf(core, ctx context.Context) context.Context {
	return proto.WithRequestID(proto.WithCaller(core, proto.CallerOf(ctx)), proto.RequestIDOf(ctx))
}

// auditAct has something that was done to the session audited.
func (s *Session) auditAct(ctx context.Context, act, note string) {
	e := auditEntryFor(ctx)
	e.Act, e.Owner, e.ContainerID, e.Note = act, s.owner, s.id, note
	s.core.cfg.Audit(e)
}

// auditGeneration says which generation was started, and of what.
func (s *Session) auditGeneration(ctx context.Context) {
	r := s.record()
	s.auditAct(ctx, actionStart, "generation "+strconv.FormatInt(r.Generation, 10)+", image "+r.Image+", class "+
		string(r.Class))
}

// maxAudited bounds the command, and the produced paths together, in an audit entry, in bytes.
const maxAudited = 16 << 10

// auditStart has it audited that the command runs.
func (e *Exec) auditStart() { e.auditAct(actionExecBegin, e.Info(), Produced{}) }

// auditEnd has the end of the command audited.
func (e *Exec) auditEnd(info proto.Exec, made Produced) { e.auditAct(actionExecEnd, info, made) }

func (e *Exec) auditAct(act string, info proto.Exec, made Produced) {
	entry := e.by
	if entry.Actor == "" { // begun under another daemon
		entry = proto.AuditEntry{Actor: cmp.Or(e.key, proto.ActorReconcile), Outcome: proto.AuditOK}
	}
	x := proto.AuditExec{
		JobID: info.JobID, User: info.User, Command: secrets.RedactCut(commandLine(info), maxAudited),
		StdoutBytes: info.StdoutBytes, StderrBytes: info.StderrBytes,
		Produced: e.redactor.HideAll(SomeOf(made.Paths, maxAudited)), FileIDs: made.FileIDs,
	}
	if info.End != nil {
		x.Reason, x.ReturnCode, x.CPUSeconds, x.Seconds = info.End.Reason, info.End.ReturnCode, info.End.CPUSeconds,
			info.Duration(time.Time{}).Seconds()
	}
	entry.Act, entry.Owner, entry.ContainerID, entry.ExecID, entry.Exec = act, e.s.owner, e.s.id, e.id, &x
	e.s.core.cfg.Audit(entry)
}

// AuditText has it audited that something was done by a command that runs, such as a cell of an interpreter. Secrets in
// text are replaced.
func (e *Exec) AuditText(ctx context.Context, act, text string) {
	entry, info := auditEntryFor(ctx), e.Info()
	entry.Act, entry.Owner, entry.ContainerID, entry.ExecID = act, e.s.owner, e.s.id, e.id
	entry.Exec = &proto.AuditExec{JobID: info.JobID, User: info.User, Command: secrets.RedactCut(e.redactor.Hide(text),
		maxAudited)}
	e.s.core.cfg.Audit(entry)
}

// AuditCall has it audited what became of a call of a tool.
func (s *Session) AuditCall(entry proto.AuditEntry) {
	entry.Owner, entry.ContainerID = s.owner, s.id
	entry.Note = s.redactor.Hide(entry.Note)
	s.core.cfg.Audit(entry)
}

// SomeOf is as many of the paths as n bytes of JSON hold, and then a count of those left out. None are an empty list,
// not null.
func SomeOf(paths []string, n int) []string {
	some := []string{}
	for i, p := range paths {
		if n -= len(p) + len(`"",`); n < 0 {
			return append(some, "… and "+strconv.Itoa(len(paths)-i)+" more")
		}
		some = append(some, p)
	}
	return some
}
