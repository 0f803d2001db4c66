package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

// A client that sends its whole body before it reads the answer gets it, too, if the request is refused at once.
func TestRefusalBeforeAnUpload(t *testing.T) {
	upload := Route{Method: "PUT", Pattern: "/upload", Where: None, MaxBodyBytes: 1 << 20,
		Handle: func(_ http.ResponseWriter, r *http.Request, _ Caller) error {
			_, err := io.Copy(io.Discard, r.Body)
			return err
		}}
	s := newSite(t, Edge{Dialect: Plain, Routes: []Route{upload}})
	for _, test := range []struct {
		path, key string
		status    int
	}{
		{"/upload", testKey, http.StatusRequestEntityTooLarge},
		{"/upload", "another", http.StatusUnauthorized},
		{"/elsewhere", testKey, http.StatusNotFound},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := strings.Repeat("x", 24<<20)
		fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n", test.path, test.key,
			len(body))
		if n, err := io.WriteString(conn, body); err != nil {
			t.Errorf("%s: sent %d bytes: %v", test.path, n, err)
		} else if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Errorf("%s: %v", test.path, err)
		} else if res.StatusCode != test.status {
			t.Errorf("%s: %s", test.path, res.Status)
		}
		conn.Close()
	}
}
