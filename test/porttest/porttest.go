// Package porttest visits ports of containers as a browser does: by their host names.
package porttest

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// Visit requests a path of the server at url under another host name. Headers are pairs of name and value. The answer
// may take a minute; its body is closed at the end of the test.
func Visit(t *testing.T, url, host, path string, headers ...string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}
