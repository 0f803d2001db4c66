// Package traces_test runs the daemon with a collector of traces, and checks the spans that the collector receives.
package traces_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A collector receives traces by OTLP over HTTP.
type collector struct {
	*httptest.Server

	mu       sync.Mutex // guards the fields below
	spans    []span
	resource map[string]any // of the last batch
	raw      bytes.Buffer   // all that came
	more     chan struct{}  // closed when spans come
}

// A span is a received span in a form that tests can compare.
type span struct {
	*trace.Span
	trace, id, parent string // in hexadecimal
	attributes        map[string]any
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{more: make(chan struct{})}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" {
			t.Errorf("spans were sent to %s", r.URL.Path)
		}
		if err := c.receive(r); err != nil {
			t.Errorf("a batch: %v", err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) receive(r *http.Request) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			return nil // as below
		}
	}
	raw, err := io.ReadAll(body)
	if err != nil { // the daemon gave the batch up, as OTEL_BSP_EXPORT_TIMEOUT says
		return nil
	}
	var batch collect.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &batch); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(raw)
	for _, of := range batch.ResourceSpans {
		c.resource = attributesOf(of.Resource.Attributes)
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, span{s, hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId),
					hex.EncodeToString(s.ParentSpanId), attributesOf(s.Attributes)})
			}
		}
	}
	close(c.more)
	c.more = make(chan struct{})
	return nil
}

// await waits for a span of that name in a trace for which is holds, or for any if is is nil.
func (c *collector) await(t *testing.T, trace, name string, is func(span) bool) span {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		c.mu.Lock()
		var names []string
		for _, s := range c.spans {
			if s.trace != trace {
				continue
			}
			if names = append(names, s.Name); s.Name == name && (is == nil || is(s)) {
				c.mu.Unlock()
				return s
			}
		}
		more := c.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("no span %q came in trace %s; there are %q", name, trace, names)
		}
	}
}

// received returns the bytes of all batches, and the resource of the last one.
func (c *collector) received() ([]byte, map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.raw.Bytes()), c.resource
}
