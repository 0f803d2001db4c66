package api

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"berth/api/openapi"

	"github.com/prometheus/client_golang/prometheus"
)

// TestOrigins checks which pages may send requests. A page under a name that an attacker made lead here has that name
// as its Host, too.
func TestOrigins(t *testing.T) {
	allowed := Origins{"https://app.example"}
	for _, c := range []struct {
		host   string
		origin []string
		ok     bool
	}{
		{"127.0.0.1:7117", nil, true},
		{"rebound.example:7117", nil, true}, // no browser
		{"127.0.0.1:7117", []string{"http://127.0.0.1:7117"}, true},
		{"[::1]:7117", []string{"http://[::1]:7117"}, true},
		{"localhost:7117", []string{"http://LocalHost:7117"}, true},
		{"localhost", []string{"https://localhost"}, true},
		{"10.1.2.3:7117", []string{"https://10.1.2.3:7117"}, true},
		{"127.0.0.1:7117", []string{"https://APP.example"}, true},
		{"rebound.example:7117", []string{"http://rebound.example:7117"}, false},
		{"rebound.example", []string{"http://rebound.example"}, false},
		{"localhost.rebound.example", []string{"http://localhost.rebound.example"}, false},
		{"127.0.0.1.rebound.example", []string{"http://127.0.0.1.rebound.example"}, false},
		{"127.0.0.1:7117", []string{"http://127.0.0.1:8000"}, false},
		{"127.0.0.1:7117", []string{"https://evil.example"}, false},
		{"127.0.0.1:7117", []string{"http://127.0.0.1:7117", "https://evil.example"}, false},
		{"127.0.0.1:7117", []string{"null"}, false},
		{"127.0.0.1:7117", []string{""}, false},
		{"", []string{"http://"}, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host, r.Header["Origin"] = c.host, c.origin
		if err := allowed.Check(r); (err == nil) != c.ok {
			t.Errorf("host %s, origin %q: %v", c.host, c.origin, err)
		}
	}
}

// TestMetricsNeedAKey checks that only programs of this machine read /metrics without a key, unless the operator has
// opened it, and that no web page does.
func TestMetricsNeedAKey(t *testing.T) {
	local := OpsConfig{OpenLocally: true}
	for _, c := range []struct {
		cfg               OpsConfig
		host, origin, key string
		want              int
	}{
		{local, "127.0.0.1:7117", "", "", 200},
		{local, "localhost:7117", "", "", 200},
		{local, "rebound.example:7117", "", "", 401},
		{local, "proxy.example", "", testKey, 200},
		{local, "127.0.0.1:7117", "https://evil.example", "", 401},
		{OpsConfig{}, "127.0.0.1:7117", "", "", 401},
		{OpsConfig{}, "127.0.0.1:7117", "", "wrong", 401},
		{OpsConfig{}, "127.0.0.1:7117", "", testKey, 200},
		{OpsConfig{Open: true}, "berth.example:7117", "", "", 200},
	} {
		c.cfg.Metrics, c.cfg.Ready = prometheus.NewRegistry(), func(context.Context) error { return nil }
		s, err := New(Config{Auth: oneKey(testKey), Edges: []Edge{Ops(c.cfg)}})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/metrics": c.want, "/healthz": http.StatusOK} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			if c.key != "" {
				r.Header.Set("X-Api-Key", c.key)
			}
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%+v: %s is %d, not %d", c, path, w.Code, want)
			}
		}
	}
}

// TestDocumentOfMetrics checks that the document does not demand a key where some requests need none.
func TestDocumentOfMetrics(t *testing.T) {
	doc := openapi.Document(openapi.Config{}, Documented(Ops(OpsConfig{Metrics: prometheus.NewRegistry()})))
	if want := `"security":[{},{"key":[]},{"bearer":[]}]`; !bytes.Contains(bytes.Join(bytes.Fields(doc), nil),
		[]byte(want)) {
		t.Errorf("%s, want %s", doc, want)
	}
}

// TestMetricsBehindAProxy checks that a proxy on this machine does not open /metrics to others.
func TestMetricsBehindAProxy(t *testing.T) {
	s, err := New(Config{Auth: oneKey(testKey), Edges: []Edge{Ops(OpsConfig{OpenLocally: true,
		Metrics: prometheus.NewRegistry(), Ready: func(context.Context) error { return nil }})}})
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]int{"X-Other": 200, "X-Forwarded-For": 401, "X-Forwarded-Host": 401,
		"x-forwarded-proto": 401, "Forwarded": 401, "Via": 401, "X-Real-IP": 401} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Host = "127.0.0.1:7117"
		r.Header.Set(header, "203.0.113.9")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != want {
			t.Errorf("with %s: %d, not %d", header, w.Code, want)
		}
	}
}

// TestParseOrigins checks that an origin that no browser would send is refused, and so is one that any page can have.
func TestParseOrigins(t *testing.T) {
	for text, want := range map[string]string{
		"https://app.example": "https://app.example", "HTTPS://App.Example:443": "https://app.example",
		"http://a:80": "http://a", "http://a:443": "http://a:443", "http://[::1]:3000": "http://[::1]:3000",
		"chrome-extension://abc": "chrome-extension://abc", "*": "", "null": "", "": "", "app.example": "",
		"https://app.example/": "", "https://app.example/x": "", "https://*.example": "", "https://": "",
		"https://u@app.example": "", "https://a?b": "", "https://a#b": "", "https://a b": "",
	} {
		got, err := ParseOrigins([]string{"https://other.example", text})
		if err == nil != (want != "") || err == nil && got[1] != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
}
