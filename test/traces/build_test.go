package traces_test

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
)

// TestSpansOfABuild checks that the steps of a build have spans below that of the build. The span of a step that failed
// has that status; no span holds a command.
func TestSpansOfABuild(t *testing.T) {
	s := newServer(t, "--warm-max", "0")
	const dockerfile = "FROM base\nRUN echo private-command\nRUN exit 3\n"
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "Dockerfile", Typeflag: tar.TypeReg, Mode: 0o644,
		Size: int64(len(dockerfile))}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, dockerfile) // Close says whether all was written
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	id := s.trace()
	req, err := http.NewRequest("POST", s.Daemon.URL+"/v1/images/build?name=x", &archive)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Api-Key": {s.Key}, "Traceparent": {"00-" + id + "-" + parentSpan + "-01"}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), `"exit_code":3`) {
		t.Fatalf("%v, %s", err, text)
	}
	build := s.await(t, id, "image.build", nil)
	broken := s.await(t, id, "image.build.step", func(s span) bool {
		return s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR
	})
	childOf(t, broken, build.id)
	childOf(t, s.await(t, id, "image.build.step", func(s span) bool { return s.id != broken.id }), build.id)
	if raw, _ := s.received(); bytes.Contains(raw, []byte("private-command")) {
		t.Error("a span holds a command")
	}
}
