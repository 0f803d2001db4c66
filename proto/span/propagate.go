package span

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The names of a trace context in headers and in the metadata of MCP. W3C defines them and their values.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// carriers reads and writes trace contexts. Baggage is left out: it may be private, and upstreams are strangers.
var carriers propagation.TraceContext

// FromHeader returns ctx with the trace context that a request's header has. A header that is malformed has none.
func FromHeader(ctx context.Context, h http.Header) context.Context {
	if len(h["Traceparent"]) == 0 {
		return ctx
	}
	return carriers.Extract(ctx, propagation.HeaderCarrier(h))
}

// ToHeader sets the trace context of ctx in a request's header. Without one the header stays.
func ToHeader(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		h.Del(traceState) // of another context
		carriers.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// FromMeta returns ctx with the trace context in the metadata of an MCP message, whose values are strings.
func FromMeta(ctx context.Context, meta map[string]any) context.Context {
	if _, ok := meta[traceParent].(string); !ok {
		return ctx
	}
	carrier := propagation.MapCarrier{}
	for _, name := range carriers.Fields() {
		if text, ok := meta[name].(string); ok {
			carrier[name] = text
		}
	}
	return carriers.Extract(ctx, carrier)
}

// Environ adds the trace context of ctx to the variables of a process, as TRACEPARENT and TRACESTATE.
func Environ(ctx context.Context, env map[string]string) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	carrier := propagation.MapCarrier{}
	carriers.Inject(ctx, carrier)
	env["TRACEPARENT"] = carrier[traceParent]
	if state := carrier[traceState]; state != "" {
		env["TRACESTATE"] = state
	}
}

// Carry returns to with the span of from. It is for work that goes on after its request.
func Carry(to, from context.Context) context.Context {
	s := trace.SpanFromContext(from)
	if !s.SpanContext().IsValid() {
		return to
	}
	return trace.ContextWithSpan(to, s)
}
