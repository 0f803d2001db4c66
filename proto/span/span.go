// Package span makes the spans of requests and of the work that they cause, and passes their trace context on.
//
// A span is one operation with a beginning and an end, as OpenTelemetry defines it. Start begins a span as the child of
// the context's span. Names of attributes are in attributes.go, and headers, variables and other carriers of a trace
// context in propagate.go. Attributes never hold what may be private: no commands, no paths, no texts of errors.
//
// Spans are recorded after Record has named a provider, which package daemon/traces makes. Before that, Start returns
// the zero Span, whose methods do nothing, and allocates nothing. A trace context that a client sends is passed on
// nevertheless.
package span

import (
	"context"
	"sync/atomic"

	"berth/proto"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// tracer makes the spans; nil: spans are not recorded.
var tracer atomic.Pointer[trace.Tracer]

// scope is the name of berth among the libraries that make spans.
const scope = "berth"

// Record has the spans of this process made by a provider; nil: spans are not recorded.
func Record(p trace.TracerProvider) {
	if p == nil {
		tracer.Store(nil)
		return
	}
	t := p.Tracer(scope, trace.WithInstrumentationVersion(proto.Version))
	tracer.Store(&t)
}

// A Span is an operation that is being recorded. The zero Span is not recorded, and its methods do nothing.
type Span struct{ span trace.Span }

// Start begins a span of work inside the daemon.
func Start(ctx context.Context, name string) (context.Context, Span) {
	return start(ctx, name, trace.SpanKindInternal)
}

// StartServer begins the span of a request that was received.
func StartServer(ctx context.Context, name string) (context.Context, Span) {
	return start(ctx, name, trace.SpanKindServer)
}

// StartClient begins the span of a request to another server.
func StartClient(ctx context.Context, name string) (context.Context, Span) {
	return start(ctx, name, trace.SpanKindClient)
}

func start(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	t := tracer.Load()
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := (*t).Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, Span{s}
}

// Of returns the span of a context.
func Of(ctx context.Context) Span {
	if tracer.Load() == nil {
		return Span{}
	}
	return Span{trace.SpanFromContext(ctx)}
}

// Recorded reports whether the span is recorded. Ask before computing an attribute that costs anything.
func (s Span) Recorded() bool { return s.span != nil && s.span.IsRecording() }

// Rename sets the name of the span.
func (s Span) Rename(name string) {
	if s.span != nil {
		s.span.SetName(name)
	}
}

// String sets an attribute. An empty value is left out.
func (s Span) String(key Key, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(key.String(value))
	}
}

// Strings sets an attribute that is a list.
func (s Span) Strings(key Key, values []string) {
	if s.span != nil {
		s.span.SetAttributes(key.StringSlice(values))
	}
}

// Int sets an attribute.
func (s Span) Int(key Key, value int64) {
	if s.span != nil {
		s.span.SetAttributes(key.Int64(value))
	}
}

// Bool sets an attribute.
func (s Span) Bool(key Key, value bool) {
	if s.span != nil {
		s.span.SetAttributes(key.Bool(value))
	}
}

// Fail sets the status of the span to Error, with the kind of the failure. Only the kind is recorded: the text of an
// error may hold what is private.
func (s Span) Fail(kind string) {
	if s.span != nil {
		s.span.SetAttributes(ErrorType.String(kind))
		s.span.SetStatus(codes.Error, kind)
	}
}

// End ends the span. With an error its status is Error.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.Fail(string(proto.CodeOf(err)))
	}
	s.span.End()
}

// A Key is the name of an attribute.
type Key = attribute.Key
