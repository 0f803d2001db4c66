package traces

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"berth/proto"
)

// OpenTelemetry lets a program ignore variables that it does not know, and the libraries ignore values that they cannot
// read. An operator then looks for spans that were never meant to come. So every variable of the specification is in
// one of the tables below: those in read change what the daemon does, and have valid values; those in refused would
// have no effect here. Variables of other languages, such as OTEL_PYTHON_…, are for other programs and left alone.

// A check returns what a value must be, or "" if it is valid.
type check func(value string) (want string)

// read are the variables that the daemon or its libraries obey.
var read = map[string]check{
	"OTEL_SDK_DISABLED":        oneOf("true", "false"),
	"OTEL_TRACES_EXPORTER":     listOf("otlp", "console", "none"),
	"OTEL_METRICS_EXPORTER":    oneOf("none"),
	"OTEL_LOGS_EXPORTER":       oneOf("none"),
	"OTEL_PROPAGATORS":         oneOf("tracecontext"),
	"OTEL_SERVICE_NAME":        anything,
	"OTEL_RESOURCE_ATTRIBUTES": anything, // Open refuses a malformed list
	"OTEL_TRACES_SAMPLER": oneOf("always_on", "always_off", "traceidratio", "parentbased_always_on",
		"parentbased_always_off", "parentbased_traceidratio"),
	"OTEL_TRACES_SAMPLER_ARG": ratio,

	"OTEL_BSP_SCHEDULE_DELAY":        number,
	"OTEL_BSP_EXPORT_TIMEOUT":        number,
	"OTEL_BSP_MAX_QUEUE_SIZE":        number,
	"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": number,

	"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT":      number,
	"OTEL_ATTRIBUTE_COUNT_LIMIT":             number,
	"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": number,
	"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT":        number,
	"OTEL_SPAN_EVENT_COUNT_LIMIT":            number,
	"OTEL_SPAN_LINK_COUNT_LIMIT":             number,
	"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT":       number,
	"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT":        number,
}

// ofExporter are the ends of variables that begin with exporterPrefix, or with that and tracesPrefix.
var ofExporter = map[string]check{
	"ENDPOINT": anything, // isOff checks it
	"PROTOCOL": oneOf(protocolHTTP, protocolJSON, protocolGRPC),
	"HEADERS":  anything,
	"TIMEOUT":  number, "COMPRESSION": oneOf("gzip", "none"), "INSECURE": oneOf("true", "false"),
	"CERTIFICATE": readable, "CLIENT_CERTIFICATE": readable, "CLIENT_KEY": readable,
}

const (
	exporterPrefix = "OTEL_EXPORTER_OTLP_"
	tracesPrefix   = "TRACES_"
)

// refused are variables of the specification, or their beginnings, that have no effect on a daemon, with the reason.
var refused = []struct{ prefix, why string }{
	{"OTEL_EXPORTER_OTLP_METRICS_", onlyTraces}, {"OTEL_EXPORTER_OTLP_LOGS_", onlyTraces},
	{"OTEL_EXPORTER_OTLP_", "the exporter has no such variable"},
	{"OTEL_METRIC_EXPORT_", onlyTraces}, {"OTEL_METRICS_EXEMPLAR_FILTER", onlyTraces},
	{"OTEL_BLRP_", onlyTraces}, {"OTEL_LOGRECORD_", onlyTraces}, {"OTEL_EXPORTER_PROMETHEUS_", onlyTraces},
	{"OTEL_EXPORTER_ZIPKIN_", "traces are sent by OTLP"}, {"OTEL_EXPORTER_JAEGER_", "traces are sent by OTLP"},
	{"OTEL_LOG_LEVEL", "the daemon logs what goes wrong with traces as its other warnings"},
	{"OTEL_CONFIG_FILE", "the daemon reads variables"}, {"OTEL_EXPERIMENTAL_CONFIG_FILE", "the daemon reads variables"},
	{"OTEL_ENTITIES", "use OTEL_RESOURCE_ATTRIBUTES"},
}

const onlyTraces = "the daemon sends traces only, and has its metrics at /metrics"

// checkVariables refuses variables that have no effect, and values that are not valid. No value is shown that may hold
// a password.
func checkVariables(environ []string) error {
	slices.Sort(environ) // so that the same environment has the same error
	for _, item := range environ {
		name, value, _ := strings.Cut(item, "=")
		if value == "" || !strings.HasPrefix(name, "OTEL_") {
			continue // an empty variable counts as unset
		}
		is, ok := read[name]
		if of, exporter := strings.CutPrefix(name, exporterPrefix); exporter {
			is, ok = ofExporter[strings.TrimPrefix(of, tracesPrefix)]
		}
		if ok {
			if want := is(value); want != "" {
				return proto.Errorf(proto.InvalidArgument, "", name, "%s must be %s", name, want)
			}
			continue
		}
		for _, r := range refused {
			if strings.HasPrefix(name, r.prefix) {
				return proto.Errorf(proto.InvalidArgument, "", name, "%s has no effect on the daemon (%s); unset it",
					name, r.why)
			}
		}
	}
	return nil
}

func anything(string) string { return "" }

func oneOf(valid ...string) check {
	return func(value string) string {
		if slices.Contains(valid, strings.ToLower(strings.TrimSpace(value))) {
			return ""
		}
		return strings.Join(valid, " or ") + ", or unset"
	}
}

// listOf is oneOf for a list with commas.
func listOf(valid ...string) check {
	return func(value string) string {
		for item := range strings.SplitSeq(value, ",") {
			if want := oneOf(valid...)(item); want != "" {
				return want
			}
		}
		return ""
	}
}

func number(value string) string {
	if n, err := strconv.Atoi(strings.TrimSpace(value)); err != nil || n < 0 {
		return "a number of 0 or more"
	}
	return ""
}

func ratio(value string) string {
	if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil || !(n >= 0 && n <= 1) {
		return "a number from 0 to 1"
	}
	return ""
}

func readable(value string) string {
	f, err := os.Open(value)
	if err != nil {
		return "a file that the daemon can read"
	}
	_ = f.Close() // it was only read
	return ""
}
