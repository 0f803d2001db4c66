package api

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestEdgesByHost serves one path by three edges: on any host, below a domain, and on one name of that domain.
func TestEdgesByHost(t *testing.T) {
	says := func(name string) Handler {
		return func(w http.ResponseWriter, r *http.Request, _ Caller) error {
			return JSON(w, http.StatusOK, map[string]string{"edge": name})
		}
	}
	s := newSite(t,
		Edge{Name: "any", Dialect: Plain, Routes: []Route{
			{Method: "GET", Pattern: "/same", Where: None, Public: true, Handle: says("any")},
			{Method: "GET", Pattern: "/elsewhere", Where: None, Public: true, Handle: says("any")}}},
		Edge{Name: "wild", Host: "*.Preview.test", Prefixes: []string{"/"}, Dialect: shout, Routes: []Route{
			{Method: "GET", Pattern: "/same", Where: InHost, Public: true, Handle: says("wild")},
			{Method: "POST", Pattern: "/{id}", Where: InHost, Public: true, Handle: says("wild")}}},
		Edge{Name: "one", Host: "admin.preview.test", Dialect: Plain, Routes: []Route{
			{Method: "GET", Pattern: "/same", Where: None, Public: true, Handle: says("one")}}})
	for _, c := range []struct {
		host, path string
		status     int
		want       string
	}{
		{"127.0.0.1:8080", "/same", 200, `"any"`},
		{"example.org", "/same", 200, `"any"`},
		{"8000-container_x.preview.test", "/same", 200, `"wild"`},
		{"8000-CONTAINER.preview.TEST.:8443", "/same", 200, `"wild"`},
		{"admin.preview.test:80", "/same", 200, `"one"`},
		{"a.b.preview.test", "/same", 200, `"any"`}, // a star is one label
		{"preview.test", "/same", 200, `"any"`},
		{"x.preview.test", "/elsewhere", 405, "POST"}, // not the other edge's route, and in this edge's dialect
		{"admin.preview.test", "/elsewhere", 404, "request_id"},
	} {
		req, err := http.NewRequest("GET", s.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.status || !strings.Contains(string(body), c.want) {
			t.Errorf("%s%s: %d %s (%v)", c.host, c.path, res.StatusCode, body, err)
		}
	}
}

// TestRoutesSayWhere refuses tables that are wrong about where a container's ID stands.
func TestRoutesSayWhere(t *testing.T) {
	for _, c := range []struct {
		host, pattern string
		where         Place
		ok            bool
	}{
		{"", "/v1/x", 0, false},
		{"", "/v1/x", None, true},
		{"", "/v1/x", InBody, true},
		{"", "/v1/x", InPath, false},
		{"", "/v1/x/{id}", InPath, false},
		{"", "/v1/containers/{id}", InPath, true},
		{"", "/v1/containers/{id}/exec", InPath, true},
		{"", "/v1/containers/{id}/exec", None, false},
		{"", "/v1/x", InHost, false},
		{"x.test", "/v1/x", InHost, false},
		{"*.x.test", "/v1/x", InHost, true},
	} {
		_, err := New(Config{Edges: []Edge{{Name: "t", Host: c.host, Dialect: Plain, Routes: []Route{
			{Method: "GET", Pattern: c.pattern, Where: c.where}}}}})
		if (err == nil) != c.ok {
			t.Errorf("%s%s %d: %v", c.host, c.pattern, c.where, err)
		}
	}
}
