package ports

import (
	"net/http/httptest"
	"testing"
)

// A browser's question before a request of a page of another origin goes where that request will.
func TestURLRouteIsTheAPIs(t *testing.T) {
	for _, c := range []struct {
		method, before, path string
		app                  bool // whether the application in the container gets it
	}{
		{"POST", "", "80/url", false},
		{"OPTIONS", "POST", "80/url", false},
		{"OPTIONS", "GET", "80/url", true},
		{"OPTIONS", "", "80/url", true},
		{"OPTIONS", "POST", "80/urls", true},
		{"GET", "POST", "80/url", true}, // the header means nothing here
		{"CONNECT", "", "80/x", false},
	} {
		r := httptest.NewRequest(c.method, "/v1/containers/container_x/ports/"+c.path, nil)
		r.Header.Set("Access-Control-Request-Method", c.before)
		if _, app := inPath(r); app != c.app {
			t.Errorf("%s %s, asking for %q: the application gets it: %v", c.method, c.path, c.before, app)
		}
	}
}
