package traces_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"berth/daemon/traces"
	"berth/proto/span"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// A received span is one that a collector has decoded. IDs are in hexadecimal.
type received struct {
	trace, name, container string
	service                string // of the resource
}

// receivedOf returns the first span of a batch.
func receivedOf(batch *collect.ExportTraceServiceRequest) (r received) {
	for _, a := range batch.ResourceSpans[0].Resource.Attributes {
		if a.Key == "service.name" {
			r.service = a.Value.GetStringValue()
		}
	}
	s := batch.ResourceSpans[0].ScopeSpans[0].Spans[0]
	r.trace, r.name = hex.EncodeToString(s.TraceId), s.Name
	for _, a := range s.Attributes {
		if a.Key == string(span.ContainerID) {
			r.container = a.Value.GetStringValue()
		}
	}
	return r
}

// A grpcCollector receives traces by OTLP over gRPC.
type grpcCollector struct {
	collect.UnimplementedTraceServiceServer
	spans chan received
}

func (c grpcCollector) Export(_ context.Context, batch *collect.ExportTraceServiceRequest) (
	*collect.ExportTraceServiceResponse, error) {
	c.spans <- receivedOf(batch)
	return &collect.ExportTraceServiceResponse{}, nil
}

// httpCollector receives traces by OTLP over HTTP, in the encoding that the request names.
func httpCollector(t *testing.T, spans chan received) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("a batch for %s: %v", r.URL.Path, err)
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		var batch collect.ExportTraceServiceRequest
		switch r.Header.Get("Content-Type") {
		case "application/x-protobuf":
			if err := proto.Unmarshal(body, &batch); err != nil {
				t.Error(err)
				return
			}
			spans <- receivedOf(&batch)
		case "application/json":
			spans <- receivedJSON(t, body)
			_, _ = w.Write([]byte("{}"))
		default:
			t.Errorf("a batch of the type %q", r.Header.Get("Content-Type"))
		}
	}
}

// receivedJSON is receivedOf for OTLP's JSON, which writes IDs in hexadecimal, other than protobuf's own JSON.
func receivedJSON(t *testing.T, body []byte) (r received) {
	type attributes []struct {
		Key   string
		Value struct{ StringValue string }
	}
	var batch struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes attributes }
			ScopeSpans []struct {
				Spans []struct {
					TraceID, Name string
					Attributes    attributes
				}
			}
		}
	}
	if err := json.Unmarshal(body, &batch); err != nil {
		t.Errorf("%v in %s", err, body)
		return r
	}
	for _, a := range batch.ResourceSpans[0].Resource.Attributes {
		if a.Key == "service.name" {
			r.service = a.Value.StringValue
		}
	}
	s := batch.ResourceSpans[0].ScopeSpans[0].Spans[0]
	r.trace, r.name = strings.ToLower(s.TraceID), s.Name
	for _, a := range s.Attributes {
		if a.Key == string(span.ContainerID) {
			r.container = a.Value.StringValue
		}
	}
	return r
}

const ofClient = "4bf92f3577b34da6a3ce929d0e0e4736"

// sendSpan records one span as the variables say.
func sendSpan(t *testing.T, env map[string]string) {
	t.Helper()
	set(t, env)
	r, err := traces.Open(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	ctx := span.FromHeader(t.Context(), http.Header{"Traceparent": {"00-" + ofClient + "-00f067aa0ba902b7-01"}})
	_, sp := span.Start(ctx, "container.create")
	sp.String(span.ContainerID, "container_1")
	sp.End(nil)
	if err := r.Close(); err != nil { // it sends what is left
		t.Error(err)
	}
}

// TestProtocols sends a span to a collector in each protocol and encoding of OTLP, and decodes it there.
func TestProtocols(t *testing.T) {
	spans := make(chan received, 1)
	web := httptest.NewServer(httpCollector(t, spans))
	defer web.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	collect.RegisterTraceServiceServer(srv, grpcCollector{spans: spans})
	go func() { _ = srv.Serve(ln) }() // ends with Stop
	defer srv.Stop()
	for protocol, endpoint := range map[string]string{"": web.URL, "http/protobuf": web.URL, "http/json": web.URL,
		"grpc": "http://" + ln.Addr().String()} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			sendSpan(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
				"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_SERVICE_NAME": "of-test"})
			select {
			case got := <-spans:
				if want := (received{ofClient, "container.create", "container_1", "of-test"}); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			default:
				t.Error("no span came")
			}
		})
	}
}

// TestConsole checks the lines of the console exporter.
func TestConsole(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	sendSpan(t, map[string]string{"OTEL_TRACES_EXPORTER": "console"})
	os.Stdout = stdout
	w.Close()
	var line struct {
		Name       string            `json:"name"`
		Trace      string            `json:"trace_id"`
		Parent     string            `json:"parent_span_id"`
		Attributes map[string]string `json:"attributes"`
	}
	if err := json.NewDecoder(r).Decode(&line); err != nil || line.Name != "container.create" ||
		line.Trace != ofClient || line.Parent != "00f067aa0ba902b7" ||
		line.Attributes[string(span.ContainerID)] != "container_1" {
		t.Errorf("%+v, %v", line, err)
	}
}
