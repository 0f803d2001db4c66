package api

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/proto/span"
	"berth/test/logtest"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestKeyInPath checks that a key in a path counts as one in the header, and that nothing but the authenticator sees
// it: not the handler, the log, the audit log, spans or errors, whatever is wrong with the request.
func TestKeyInPath(t *testing.T) {
	const key = "berth_secret-of-a-path"
	log, dir := &logtest.Buffer{}, t.TempDir()
	audit := openLog(t, dir)
	var seen []string
	s, err := New(Config{Auth: oneKey(key), Audit: audit, Log: slog.New(slog.NewTextHandler(log, nil)), Edges: []Edge{{
		Name: "foreign", KeyBelow: "/foreign", Dialect: Plain, Prefixes: []string{"/foreign"}, Routes: []Route{{
			Method: "POST", Pattern: "/foreign/v1/do/{item}", Where: None,
			Handle: func(w http.ResponseWriter, r *http.Request, c Caller) error {
				seen = append(seen, r.URL.String(), r.RequestURI, r.Pattern, r.PathValue("item"))
				if r.PathValue("item") == "panic" {
					panic("on purpose")
				}
				return JSON(w, http.StatusOK, c.Owner)
			}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	spans := tracetest.NewSpanRecorder()
	span.Record(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))
	defer span.Record(nil)
	server := httptest.NewServer(s)
	defer server.Close()
	for _, c := range []struct {
		method, path, header string
		status               int
	}{
		{"POST", "/foreign/" + key + "/v1/do/a%2Fb?x=1", "", 200},
		{"POST", "/foreign/berth%5Fsecret-of-a-path/v1/do/a", "", 200},
		{"POST", "/foreign/" + key + "/v1/do/a", "another", 200},
		{"POST", "/foreign/v1/do/a", key, 200},
		{"POST", "/foreign/v1/do/a", "", 401},
		{"POST", "/foreign/" + key + "x/v1/do/a", "", 401},
		{"POST", "/foreign/" + key + "/v1/do/panic", "", 500},
		{"GET", "/foreign/" + key + "/v1/do/a", "", 405},
		{"POST", "/foreign/" + key + "/do/a", "", 404},
		{"POST", "/foreign/" + key, "", 404},
		{"POST", "/foreign/" + key + "/v1//do/a", "", 404},
		{"POST", "/foreign/%zz/v1/do/a", "", 400},
	} {
		req, err := http.NewRequest(c.method, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = c.path // as it is
		if c.header != "" {
			req.Header.Set("X-Api-Key", c.header)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.status {
			t.Errorf("%s %s: %d %s (%v), want %d", c.method, c.path, res.StatusCode, body, err, c.status)
		}
		if strings.Contains(string(body)+headerText(res.Header), "secret-of-a-path") {
			t.Errorf("%s %s: the answer has the key: %s", c.method, c.path, body)
		}
	}
	if want := "/foreign/v1/do/a%2Fb?x=1"; len(seen) == 0 || seen[0] != want || seen[1] != want || seen[3] != "a/b" {
		t.Errorf("the handler saw %q", seen)
	}
	if err := audit.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded strings.Builder
	for _, s := range spans.Ended() {
		fmt.Fprintln(&recorded, s.Name(), s.Attributes(), s.Events(), s.Status())
	}
	for name, text := range map[string]string{"handler": strings.Join(seen, " "), "log": log.String(),
		"audit log": string(entries), "spans": recorded.String()} {
		if !strings.Contains(text, "/foreign/v1/do/") || strings.Contains(text, "secret-of-a-path") {
			t.Errorf("the %s: %s", name, text)
		}
	}
}

func headerText(h http.Header) string {
	var b strings.Builder
	_ = h.Write(&b)
	return b.String()
}
