package traces_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/daemon/traces"
	"berth/proto"
)

// set sets these variables of OpenTelemetry and no others.
func set(t *testing.T, env map[string]string) {
	t.Helper()
	for _, item := range os.Environ() {
		if name, _, _ := strings.Cut(item, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
}

// TestEachVariable checks that each variable of the specification is obeyed or refused by name, and what is no valid
// value of those that are obeyed.
func TestEachVariable(t *testing.T) {
	const on = "OTEL_EXPORTER_OTLP_ENDPOINT"
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	otlp := map[string][2]string{"HEADERS": {"a=b", ""}, "TIMEOUT": {"100", "1s"}, "COMPRESSION": {"gzip", "zstd"},
		"INSECURE": {"true", "yes"}, "PROTOCOL": {"grpc", "http"}}
	tests := map[string][2]string{ // a valid value and one that is not; "": there is none
		"OTEL_METRICS_EXPORTER": {"none", "otlp"}, "OTEL_LOGS_EXPORTER": {"none", "otlp"},
		"OTEL_PROPAGATORS": {"tracecontext", "b3"}, "OTEL_SERVICE_NAME": {"x", ""},
		"OTEL_RESOURCE_ATTRIBUTES": {"a=b", "a"}, "OTEL_TRACES_SAMPLER": {"always_off", "xray"},
		"OTEL_TRACES_SAMPLER_ARG": {"0.5", "2"}, "OTEL_BSP_SCHEDULE_DELAY": {"1", "-1"},
		"OTEL_BSP_EXPORT_TIMEOUT": {"1", "1s"}, "OTEL_BSP_MAX_QUEUE_SIZE": {"1", "x"},
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": {"1", "x"}, "OTEL_ATTRIBUTE_COUNT_LIMIT": {"1", "x"},
		"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": {"1", "x"}, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": {"1", "x"},
		"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": {"1", "x"}, "OTEL_SPAN_EVENT_COUNT_LIMIT": {"1", "x"},
		"OTEL_SPAN_LINK_COUNT_LIMIT": {"1", "x"}, "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": {"1", "x"},
		"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT":       {"1", "x"},
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        {"", file + ".none"},
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": {"", file + ".none"},
		"OTEL_EXPORTER_OTLP_CLIENT_KEY":         {"", file + ".none"},
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT":   {"", "x"}, "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": {"", "grpc"},
		"OTEL_EXPORTER_OTLP_SPAN_INSECURE": {"", "true"}, "OTEL_EXPORTER_ZIPKIN_ENDPOINT": {"", "x"},
		"OTEL_METRIC_EXPORT_INTERVAL": {"", "1"}, "OTEL_METRICS_EXEMPLAR_FILTER": {"", "always_on"},
		"OTEL_BLRP_SCHEDULE_DELAY": {"", "1"}, "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": {"", "1"},
		"OTEL_EXPORTER_PROMETHEUS_PORT": {"", "1"}, "OTEL_LOG_LEVEL": {"", "debug"},
		"OTEL_CONFIG_FILE": {"", file}, "OTEL_ENTITIES": {"", "x"},
		"OTEL_PYTHON_ID_GENERATOR": {"x", ""}, // of another language
	}
	for end, values := range otlp {
		tests["OTEL_EXPORTER_OTLP_"+end], tests["OTEL_EXPORTER_OTLP_TRACES_"+end] = values, values
	}
	for name, values := range tests {
		for i, value := range values {
			if value == "" {
				continue
			}
			t.Run(name+"="+filepath.Base(value), func(t *testing.T) {
				set(t, map[string]string{on: "http://127.0.0.1:1", name: value})
				r, err := traces.Open(t.Context(), slog.New(slog.DiscardHandler))
				if r != nil {
					_ = r.Close()
				}
				if i == 0 && err != nil || i == 1 && (err == nil || !strings.Contains(err.Error(), name)) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

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
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "console"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp,console"}, refused: "OTEL_TRACES_EXPORTER"},
		{env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "console,otlp"}, on: true},
		{env: map[string]string{endpoint: "127.0.0.1:4318"}, refused: endpoint},
		{env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
			refused: "OTEL_EXPORTER_OTLP_PROTOCOL"},
	} {
		set(t, tt.env)
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
