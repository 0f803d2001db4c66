// Package traces sends the spans of the daemon to a collector, by OTLP, or writes them to standard output.
//
// The standard variables of OpenTelemetry configure it, and no flags of berth. It is off unless they name an endpoint
// or the console. One that would have no effect, or has no valid value, is refused by name; see variables.go.
// The spans themselves are made where the work is done, with package proto/span.
//
// Spans wait in memory and leave in batches. A collector that is down, slow or full costs spans and nothing else: no
// request waits for it, and the log gets one warning in WarnEvery.
package traces

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/proto/span"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// WarnEvery is the least time between two warnings about the collector.
const WarnEvery = 10 * time.Minute

// How long Close waits until the last spans are sent, and how long if the collector has failed before.
const (
	flushTime       = 5 * time.Second
	failedFlushTime = 500 * time.Millisecond
)

// retryTime is how long a batch is sent again to a collector that fails. Others wait meanwhile, up to
// OTEL_BSP_MAX_QUEUE_SIZE spans.
const retryTime = 20 * time.Second

// Variables that Open reads itself. The libraries read the others.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// Protocols of OTLP.
const (
	protocolHTTP = "http/protobuf"
	protocolJSON = "http/json"
	protocolGRPC = "grpc"
)

// A Recorder records spans and sends them.
type Recorder struct {
	provider *sdk.TracerProvider
	sender   *sender
}

// Open begins to record the spans of this process, as the variables say. It returns nil if they name neither an
// endpoint nor the console. It connects to nothing, so the collector may start later. Its error names the variable that
// has to be changed.
func Open(ctx context.Context, log *slog.Logger) (*Recorder, error) {
	if off, err := isOff(); off || err != nil {
		return nil, err
	}
	if err := checkVariables(os.Environ()); err != nil {
		return nil, err
	}
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", "berth"), attribute.String("service.version", proto.Version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("reading OTEL_RESOURCE_ATTRIBUTES, which is a list like "+
			"deployment.environment.name=test: %w", err)
	}
	s := &sender{log: log}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(s.warn))
	options := []sdk.TracerProviderOption{sdk.WithResource(res)}
	if name := os.Getenv(envExporter); name == "" || exporterNamed("otlp") {
		if s.SpanExporter, err = newExporter(ctx); err != nil {
			return nil, fmt.Errorf("preparing to send traces: %w", err)
		}
		options = append(options, sdk.WithBatcher(s))
	}
	if exporterNamed("console") {
		options = append(options, sdk.WithBatcher(&console{w: os.Stdout}))
	}
	r := &Recorder{sdk.NewTracerProvider(options...), s}
	span.Record(r.provider)
	return r, nil
}

// Close sends the spans that have ended, within a few seconds, and stops the recording.
func (r *Recorder) Close() error {
	span.Record(nil)
	limit := flushTime
	if r.sender.hasFailed() {
		limit = failedFlushTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := r.provider.Shutdown(ctx); err != nil {
		r.sender.warn(err)
	}
	return nil
}

// isOff reports whether the variables leave traces off. A value that is not valid is an error.
func isOff() (bool, error) {
	if strings.EqualFold(os.Getenv(envDisabled), "true") {
		return true, nil
	}
	if want := read[envExporter](os.Getenv(envExporter)); os.Getenv(envExporter) != "" && want != "" {
		return false, proto.Errorf(proto.InvalidArgument, "", envExporter, "%s must be %s", envExporter, want)
	}
	if exporterNamed("none") {
		return true, nil
	}
	name, endpoint := firstSet(envTracesEndpoint, envEndpoint)
	if endpoint == "" {
		if exporterNamed("otlp") && exporterNamed("console") {
			return false, proto.Errorf(proto.InvalidArgument, "", envExporter, "%s names otlp, which needs %s",
				envExporter, envEndpoint)
		}
		return !exporterNamed("console"), nil
	}
	// The value is not shown: it may hold a password.
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, proto.Errorf(proto.InvalidArgument, "", name, "%s must be a URL like http://127.0.0.1:4318", name)
	}
	return false, nil
}

// exporterNamed reports whether the list of exporters names one.
func exporterNamed(name string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(envExporter), ","),
		func(item string) bool { return strings.EqualFold(strings.TrimSpace(item), name) })
}

// firstSet returns the first variable that is set, and its value.
func firstSet(names ...string) (name, value string) {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// newExporter returns the exporter of the protocol. Its library reads the variables for the endpoint, headers, time
// limit, compression and certificates.
func newExporter(ctx context.Context) (sdk.SpanExporter, error) {
	switch name, protocol := firstSet(envTracesProtocol, envProtocol); protocol {
	case "", protocolHTTP, protocolJSON:
		return otlptrace.New(ctx, otlptracehttp.NewClient(otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: retryTime})))
	case protocolGRPC:
		return otlptrace.New(ctx, otlptracegrpc.NewClient(otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: retryTime})))
	default:
		return nil, proto.Errorf(proto.InvalidArgument, "", name, "%s is %q; there are %s, %s and %s", name, protocol,
			protocolHTTP, protocolJSON, protocolGRPC)
	}
}

// A sender sends batches of spans. It warns of failures, but seldom.
type sender struct {
	sdk.SpanExporter
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	failed bool       // the last batch could not be sent
	lost   int        // spans lost since the last warning
	warned time.Time  // of the last warning
}

// ExportSpans sends a batch. It never fails, since the library would log each failure.
func (s *sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := s.SpanExporter.ExportSpans(ctx, spans)
	s.mu.Lock()
	s.failed = err != nil
	if err != nil {
		s.lost += len(spans)
	}
	s.mu.Unlock()
	if err != nil {
		s.warn(err)
	}
	return nil
}

// warn logs a failure, unless one was logged within WarnEvery.
func (s *sender) warn(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.warned.IsZero() && time.Since(s.warned) < WarnEvery {
		return
	}
	s.log.Warn("traces cannot be sent; check the variables "+envEndpoint+" and "+envTracesEndpoint,
		"lost_spans", s.lost, "error", err)
	s.warned, s.lost = time.Now(), 0
}

func (s *sender) hasFailed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}
