package api

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/proto"
)

// Whoever is refused in the middle of an upload is told why, also after a 100-continue.
func TestRefusalInTheMiddleOfAnUpload(t *testing.T) {
	full := Route{Method: "PUT", Pattern: "/full", Where: None, MaxBodyBytes: -1, Handle: func(_ http.ResponseWriter,
		r *http.Request, _ Caller) error {
		_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
		return proto.Errorf(proto.QuotaExceeded, "", "", "the disk is full")
	}}
	s := newSite(t, Edge{Dialect: Plain, Routes: []Route{full}})
	for range 5 {
		for _, expect := range []string{"", "100-continue"} {
			req, err := http.NewRequest("PUT", s.URL+"/full",
				io.LimitReader(strings.NewReader(strings.Repeat("x", 48<<20)), 48<<20))
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = 48 << 20
			req.Header.Set("X-Api-Key", testKey)
			if expect != "" {
				req.Header.Set("Expect", expect)
			}
			res, err := (&http.Transport{}).RoundTrip(req)
			if err != nil {
				t.Fatalf("expect %q: %v", expect, err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != http.StatusInsufficientStorage || !strings.Contains(string(body), "the disk is full") {
				t.Errorf("expect %q: %d %s", expect, res.StatusCode, body)
			}
		}
	}
}
