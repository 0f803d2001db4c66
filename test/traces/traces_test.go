package traces_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"
	"berth/test/needs"

	"go.opentelemetry.io/proto/otlp/trace/v1"
)

func TestMain(m *testing.M) {
	needs.Main("run the daemon with real containers")
	os.Exit(m.Run())
}

// A server is a daemon that sends its spans to a collector.
type server struct {
	*daemontest.Daemon
	*collector
	traces int // begun by parent
}

func newServer(t *testing.T, flags ...string) *server {
	t.Helper()
	s := &server{collector: newCollector(t)}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.Server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // ms
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	var err error
	if s.Daemon, err = daemontest.New(append(flags, "--stop-on-exit")...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Daemon.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// parentSpan is the ID of the client's span in all traces.
const parentSpan = "00f067aa0ba902b7"

// trace returns the ID of a new trace of a client.
func (s *server) trace() string {
	s.traces++
	return fmt.Sprintf("4bf92f3577b34da6a3ce%012x", s.traces)
}

// call makes a request in a trace and decodes the answer.
func call[T any](t *testing.T, s *server, trace, method, path, body string) (v T) {
	t.Helper()
	req, err := http.NewRequest(method, s.Daemon.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Api-Key": {s.Key}, "Content-Type": {"application/json"},
		"Anthropic-Version": {"2023-06-01"}, "Traceparent": {"00-" + trace + "-" + parentSpan + "-01"},
		"Tracestate": {"vendor=value"}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= http.StatusBadRequest || json.Unmarshal(out, &v) != nil {
		t.Fatalf("%s %s: %s %v %s", method, path, res.Status, err, out)
	}
	return v
}

// has checks attributes of a span.
func has(t *testing.T, s span, want map[string]any) {
	t.Helper()
	for k, v := range want {
		if s.attributes[k] != v {
			t.Errorf("span %s: %s is %v, not %v", s.Name, k, s.attributes[k], v)
		}
	}
}

// childOf checks the parent of a span.
func childOf(t *testing.T, s span, parent string) {
	t.Helper()
	if s.parent != parent {
		t.Errorf("span %s is the child of %q, not of %q", s.Name, s.parent, parent)
	}
}

// TestSpansOfACommand follows a trace from a client through requests and commands into a container. No span holds a
// command, a path or the text of an error.
func TestSpansOfACommand(t *testing.T) {
	s := newServer(t)
	trace := s.trace()
	c := call[proto.Container](t, s, trace, "POST", "/v1/containers", `{"env":{"SECRET":"hunter2"}}`)
	create := s.await(t, trace, "container.create", nil)
	has(t, create, map[string]any{"berth.container.id": c.ID, "berth.runtime_class": string(c.RuntimeClass)})
	if _, ok := create.attributes["berth.container.from_pool"].(bool); !ok {
		t.Errorf("does it come from the pool? %v", create.attributes)
	}
	made := s.await(t, trace, "POST /v1/containers", nil)
	childOf(t, create, made.id)
	childOf(t, made, parentSpan)

	trace = s.trace()
	execs := "/v1/containers/" + c.ID + "/exec"
	res := call[proto.ExecResult](t, s, trace, "POST", execs,
		`{"command":"echo $TRACEPARENT $TRACESTATE; : hunter2 >/workspace/hunter2; exit 3"}`)
	request := s.await(t, trace, "POST /v1/containers/{id}/exec", nil)
	ran := s.await(t, trace, "exec", nil)
	childOf(t, request, parentSpan)
	childOf(t, ran, request.id)
	has(t, request, map[string]any{"http.request.method": "POST", "http.route": "/v1/containers/{id}/exec",
		"http.response.status_code": int64(200), "url.scheme": "http", "berth.container.id": c.ID})
	has(t, ran, map[string]any{"berth.container.id": c.ID, "berth.exec.id": res.Exec.ID, "berth.exec.reason": "exit",
		"process.exit.code": int64(3), "berth.exec.background": false})
	if request.Kind != v1.Span_SPAN_KIND_SERVER || ran.Status.GetCode() != v1.Status_STATUS_CODE_UNSET {
		t.Errorf("kind %v, status %v", request.Kind, ran.Status)
	}
	if want := "00-" + trace + "-" + ran.id + "-01 vendor=value\n"; res.Result.Result.Stdout != want {
		t.Errorf("the command has %q, not %q", res.Result.Result.Stdout, want)
	}
	for range 2 { // each command of a persistent shell has its own
		trace = s.trace()
		res := call[proto.ExecResult](t, s, trace, "POST", execs, `{"command":"echo $TRACEPARENT","shell":"main"}`)
		ran := s.await(t, trace, "exec", nil)
		if want := "00-" + trace + "-" + ran.id + "-01\n"; res.Result.Result.Stdout != want {
			t.Errorf("the command in a shell has %q, not %q", res.Result.Result.Stdout, want)
		}
	}

	trace = s.trace()
	call[proto.ExecResult](t, s, trace, "POST", execs, `{"command":"sleep 1000","timeout_seconds":0.1}`)
	ran = s.await(t, trace, "exec", nil)
	has(t, ran, map[string]any{"error.type": "timeout", "berth.exec.reason": "timeout"})
	if ran.Status.GetCode() != v1.Status_STATUS_CODE_ERROR {
		t.Errorf("status %v", ran.Status)
	}
	raw, resource := s.received()
	if bytes.Contains(raw, []byte("hunter2")) || bytes.Contains(raw, []byte("sleep 1000")) {
		t.Error("a secret or a command is in a span")
	}
	if resource["service.name"] != "berth" || resource["deployment.environment.name"] != "test" {
		t.Errorf("resource %v", resource)
	}
}

// TestSpansOfBackgroundCommands checks that the span of a command ends with the command, also after the answer.
func TestSpansOfBackgroundCommands(t *testing.T) {
	s := newServer(t)
	trace := s.trace()
	c := call[proto.Container](t, s, trace, "POST", "/v1/containers", `{}`)
	at := "/v1/containers/" + c.ID
	x := call[proto.Exec](t, s, trace, "POST", at+"/exec",
		`{"command":"until [ -e /workspace/go ]; do sleep 0.02; done","background":true}`)
	request := s.await(t, trace, "POST /v1/containers/{id}/exec", nil)
	end := s.trace()
	call[proto.ExecResult](t, s, end, "POST", at+"/exec", `{"command":"touch /workspace/go"}`)
	ran := s.await(t, trace, "exec", nil)
	childOf(t, ran, request.id)
	has(t, ran, map[string]any{"berth.exec.id": x.ID, "berth.exec.background": true, "process.exit.code": int64(0)})
	if ran.EndTimeUnixNano < request.EndTimeUnixNano {
		t.Error("the span of the command ended before that of its request")
	}

	call[proto.Exec](t, s, trace, "POST", at+"/exec", `{"command":"sleep 1000","background":true}`)
	s.Stop(syscall.SIGTERM) // spans that have ended are sent
	s.await(t, trace, "exec", func(s span) bool { return s.attributes["berth.exec.reason"] == "stopped" })
}

// TestSpansOfFiles checks the spans of snapshots, forks and restores, and of what wakes a container: a resume after a
// pause, and a start after a stop.
func TestSpansOfFiles(t *testing.T) {
	s := newServer(t)
	c := call[proto.Container](t, s, s.trace(), "POST", "/v1/containers", `{}`)
	at := "/v1/containers/" + c.ID
	about := func(name, method, path, body string) (span, string) {
		t.Helper()
		trace := s.trace()
		call[any](t, s, trace, method, at+path, body)
		sp := s.await(t, trace, name, nil)
		has(t, sp, map[string]any{"berth.container.id": c.ID, "berth.runtime_class": string(c.RuntimeClass)})
		return sp, trace
	}
	taken, trace := about("container.snapshot", "POST", "/snapshots", `{"name":"first"}`)
	childOf(t, taken, s.await(t, trace, "POST /v1/containers/{id}/snapshots", nil).id)
	snapshot := taken.attributes["berth.snapshot.id"]
	restored, trace := about("container.restore", "POST", "/restore", `{"snapshot":"first"}`)
	childOf(t, restored, s.await(t, trace, "POST /v1/containers/{id}/restore", nil).id)
	has(t, restored, map[string]any{"berth.snapshot.id": snapshot})
	about("container.start", "POST", "/exec", `{"command":"true"}`)

	_, trace = about("container.snapshot", "POST", "/fork", `{"count":2}`)
	request, forks := s.await(t, trace, "POST /v1/containers/{id}/fork", nil), map[any]bool{c.ID: true}
	for range 2 {
		fork := s.await(t, trace, "container.fork", func(s span) bool { return !forks[s.attributes["berth.container.id"]] })
		forks[fork.attributes["berth.container.id"]] = true
		childOf(t, fork, request.id)
		has(t, fork, map[string]any{"berth.container.fork_of": c.ID})
	}

	call[any](t, s, s.trace(), "POST", at+"/pause", "")
	resumed, trace := about("container.resume", "POST", "/exec", `{"command":"true"}`)
	childOf(t, resumed, s.await(t, trace, "exec", nil).id)
	call[any](t, s, s.trace(), "POST", at+"/stop", "")
	about("container.start", "POST", "/exec", `{"command":"true"}`)
}

// TestCommandLinePassesTracesOn checks that requests of the command line belong to the trace of its environment.
func TestCommandLinePassesTracesOn(t *testing.T) {
	s := newServer(t)
	bin, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	trace := s.trace()
	cmd := exec.Command(bin, "create")
	cmd.Env = append(os.Environ(), "BERTH_HOST="+s.Daemon.URL, "BERTH_API_KEY="+s.Key,
		"TRACEPARENT=00-"+trace+"-"+parentSpan+"-01")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	childOf(t, s.await(t, trace, "POST /v1/containers", nil), parentSpan)
}

// TestCollectorThatIsDown checks that requests work without the collector, and that the log says so once.
func TestCollectorThatIsDown(t *testing.T) {
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "50") // ms, so that a batch is soon given up
	s := newServer(t)
	s.Server.Close()
	const warning = "traces cannot be sent"
	trace := s.trace()
	c := call[proto.Container](t, s, trace, "POST", "/v1/containers", `{}`)
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(s.Log(), warning); {
		if time.Now().After(end) {
			t.Fatal("there is no warning")
		}
		call[proto.ExecResult](t, s, trace, "POST", "/v1/containers/"+c.ID+"/exec", `{"command":"true"}`)
	}
	for range 20 {
		call[proto.ExecResult](t, s, trace, "POST", "/v1/containers/"+c.ID+"/exec", `{"command":"true"}`)
	}
	s.Stop(syscall.SIGTERM)
	if n := strings.Count(s.Log(), warning); n != 1 {
		t.Errorf("%d warnings", n)
	}
}
