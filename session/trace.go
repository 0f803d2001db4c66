package session

import (
	"context"

	"berth/proto"
	"berth/proto/span"
)

// describeSpan says which session a span is about.
func (s *Session) describeSpan(sp span.Span) {
	if !sp.Recorded() {
		return
	}
	r := s.record()
	sp.String(span.ContainerID, s.id)
	sp.Int(span.Generation, r.Generation)
	sp.String(span.Class, string(r.Class))
	sp.String(span.ImageName, r.Image)
}

// traced does something with the session, in a span of that name.
func (s *Session) traced(ctx context.Context, name string, do func(ctx context.Context) error) error {
	ctx, sp := span.Start(ctx, name)
	err := do(ctx)
	s.describeSpan(sp)
	sp.End(err)
	return err
}

// startExecSpan begins the span of a command, which ends with the command. A resident command serves many requests and
// has none.
func startExecSpan(ctx context.Context, cmd proto.Cmd) (context.Context, span.Span) {
	if cmd.Resident {
		return ctx, span.Span{}
	}
	return span.Start(ctx, "exec")
}

// describeSpan says which command the span of e is about.
func (e *Exec) describeSpan() {
	if e.span.Recorded() {
		e.span.String(span.ContainerID, e.s.id)
		e.span.String(span.ExecID, e.id)
		e.span.Bool(span.Background, e.cmd.Background)
	}
}
