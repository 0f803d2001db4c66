package traces

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// A console writes each span as a line of JSON, for one who wants to see spans without a collector.
type console struct {
	mu sync.Mutex // held while a batch is written
	w  io.Writer
}

// A spanLine is what a console writes about a span.
type spanLine struct {
	Name       string         `json:"name"`
	TraceID    string         `json:"trace_id"`
	SpanID     string         `json:"span_id"`
	ParentID   string         `json:"parent_span_id,omitempty"`
	Kind       string         `json:"kind"`
	Start      time.Time      `json:"start"`
	End        time.Time      `json:"end"`
	Status     string         `json:"status"`
	Attributes map[string]any `json:"attributes"`
}

// ExportSpans writes a batch.
func (c *console) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := json.NewEncoder(c.w)
	for _, s := range spans {
		line := spanLine{Name: s.Name(), TraceID: s.SpanContext().TraceID().String(),
			SpanID: s.SpanContext().SpanID().String(), Kind: s.SpanKind().String(), Start: s.StartTime(),
			End: s.EndTime(), Status: s.Status().Code.String(), Attributes: map[string]any{}}
		if s.Parent().HasSpanID() {
			line.ParentID = s.Parent().SpanID().String()
		}
		for _, a := range s.Attributes() {
			line.Attributes[string(a.Key)] = a.Value.AsInterface()
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (c *console) Shutdown(context.Context) error { return nil }
