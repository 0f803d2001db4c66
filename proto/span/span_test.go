package span_test

import (
	"context"
	"net/http"
	"testing"

	"berth/proto/span"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestNothingIsPaidWhileNothingIsRecorded checks that the calls on the way of a command do not allocate.
func TestNothingIsPaidWhileNothingIsRecorded(t *testing.T) {
	ctx, header, env := t.Context(), http.Header{"Accept": {"*/*"}}, map[string]string{}
	if n := testing.AllocsPerRun(100, func() {
		ctx, s := span.Start(span.FromHeader(ctx, header), "exec")
		span.Environ(ctx, env)
		span.Carry(ctx, ctx)
		s.String(span.ExecID, "exec_1")
		s.Int(span.ExitCode, 1)
		s.Bool(span.Background, true)
		span.Of(ctx).Fail("timeout")
		s.End(context.Canceled)
	}); n > 0 || len(env) > 0 {
		t.Errorf("%v allocations, variables %v", n, env)
	}
}

// TestTraceOfTheClientIsPassedOn checks that a trace context crosses a process that records nothing.
func TestTraceOfTheClientIsPassedOn(t *testing.T) {
	ctx := span.FromHeader(t.Context(), http.Header{"Traceparent": {parent}, "Tracestate": {"a=1"}})
	ctx, s := span.Start(ctx, "work")
	defer s.End(nil)
	out, env := http.Header{"Traceparent": {"other"}, "Tracestate": {"other=1"}}, map[string]string{}
	span.ToHeader(span.Carry(t.Context(), ctx), out)
	span.Environ(ctx, env)
	if out.Get("Traceparent") != parent || out.Get("Tracestate") != "a=1" || env["TRACEPARENT"] != parent ||
		env["TRACESTATE"] != "a=1" {
		t.Errorf("%v %v", out, env)
	}
	meta := span.FromMeta(t.Context(), map[string]any{"traceparent": parent, "tracestate": 1})
	out = http.Header{}
	if span.ToHeader(meta, out); out.Get("Traceparent") != parent || out.Get("Tracestate") != "" {
		t.Errorf("of metadata: %v", out)
	}
}

// TestBrokenTraceContexts checks that a malformed context counts as none.
func TestBrokenTraceContexts(t *testing.T) {
	for _, text := range []string{"", "x", parent[:54], "ff" + parent[2:], "00-" + "00000000000000000000000000000000" +
		parent[35:], parent + "\r\nX: y"} {
		out, env := http.Header{}, map[string]string{}
		for _, ctx := range []context.Context{span.FromHeader(t.Context(), http.Header{"Traceparent": {text}}),
			span.FromMeta(t.Context(), map[string]any{"traceparent": text})} {
			span.ToHeader(ctx, out)
			span.Environ(ctx, env)
		}
		if len(out)+len(env) > 0 {
			t.Errorf("%q: %v %v", text, out, env)
		}
	}
}
