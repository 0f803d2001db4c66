package traces_test

import (
	"log/slog"
	"testing"

	"berth/daemon/traces"
	"berth/proto"
)

// TestVariables checks which variables leave traces off, and which are refused by name.
func TestVariables(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, tt := range []struct {
		env     map[string]string
		on      bool
		refused string // the variable
	}{
		{},
		{env: map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_EXPORTER": "otlp"}},
		{env: map[string]string{endpoint: "http://127.0.0.1:1"}, on: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/x"}, on: true},
		{env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, on: true},
		{env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}},
		{env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "zipkin"},
			refused: "OTEL_TRACES_EXPORTER"},
		{env: map[string]string{endpoint: "127.0.0.1:4318"}, refused: endpoint},
		{env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
			refused: "OTEL_EXPORTER_OTLP_PROTOCOL"},
	} {
		for _, name := range []string{endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
			"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"} {
			t.Setenv(name, tt.env[name])
		}
		r, err := traces.Open(t.Context(), slog.New(slog.DiscardHandler))
		if (r != nil) != tt.on || (err != nil) != (tt.refused != "") || err != nil &&
			proto.AsError(err).Item != tt.refused {
			t.Errorf("%v: %v, %v", tt.env, r, err)
		}
		if r != nil {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
