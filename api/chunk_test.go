package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"berth/api/openapi"
)

// TestChunkedBodies checks that malformed chunks are the client's error, and that a connection is not used again after
// a chunked request. A proxy that believed a Content-Length beside it could take the rest for another request.
func TestChunkedBodies(t *testing.T) {
	s := newSite(t, Edge{Name: "reader", Dialect: shout, Prefixes: []string{"/v1/shout"}, Routes: []Route{
		{Method: "POST", Pattern: "/v1/shout/read", Where: None, Handle: func(w http.ResponseWriter, r *http.Request,
			_ Caller) error {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			return JSON(w, http.StatusOK, string(text))
		}}}})
	for _, c := range []struct {
		header, body string
		want         int
		close        bool
	}{
		{"Transfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n", 200, true},
		{"Transfer-Encoding: chunked\r\nContent-Length: 3", "2\r\nhi\r\n0\r\n\r\n", 200, true},
		{"Content-Length: 2", "hi", 200, false},
		{"Transfer-Encoding: chunked", "zz\r\nhi\r\n0\r\n\r\n", 400, true},
		{"Transfer-Encoding: chunked", "-1\r\nhi\r\n0\r\n\r\n", 400, true},
		{"Transfer-Encoding: chunked", "2\r\nhiX0\r\n\r\n", 400, true},
		{"Transfer-Encoding: chunked", "fffffffffffffffff\r\nhi", 400, true},
		{"Transfer-Encoding: chunked", "2\nhi\n0\n\n", 400, true},
		{"Transfer-Encoding: chunked", "2\r\nhi\r\n0\r\nno trailer\r\n\r\n", 400, true},
		{"Transfer-Encoding: chunked", strings.Repeat("1", 5000) + "\r\n", 400, true},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "POST /v1/shout/read HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+testKey+"\r\n"+c.header+
			"\r\n\r\n"+c.body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != c.want || res.Close != c.close {
			t.Errorf("%q %.40q: %d, closes: %v", c.header, c.body, res.StatusCode, res.Close)
		}
	}
}

// TestUnwantedBodies checks that a route that takes no body does nothing if the request has a malformed one, and
// ignores a good one up to the limit.
func TestUnwantedBodies(t *testing.T) {
	done := 0
	work := func(w http.ResponseWriter, _ *http.Request, _ Caller) error {
		done++
		return JSON(w, http.StatusOK, "done")
	}
	s := newSite(t, Edge{Name: "worker", Dialect: shout, Prefixes: []string{"/v1/shout"}, Routes: []Route{
		{Method: "GET", Pattern: "/v1/shout/work", Where: None, Handle: work},
		{Method: "DELETE", Pattern: "/v1/shout/work", Where: None, Handle: work},
		{Method: "POST", Pattern: "/v1/shout/work", Where: None, Handle: work, Doc: &openapi.Operation{}}}})
	const chunked = "Transfer-Encoding: chunked\r\n"
	for _, method := range []string{"GET", "HEAD", "DELETE", "POST"} {
		for _, c := range []struct {
			header, body string
			want         int
		}{
			{"", "", 200},
			{"Content-Length: 0\r\n", "", 200},
			{"Content-Length: 2\r\n", "hi", 200},
			{chunked, "2\r\nhi\r\n0\r\n\r\n", 200},
			{"Expect: 100-continue\r\nContent-Length: 2\r\n", "hi", 200},
			{"Content-Length: 9999999\r\n", "", 413},
			{chunked, "2000000\r\n" + strings.Repeat("x", 1<<21), 413},
			{chunked, "zz\r\nhi\r\n0\r\n\r\n", 400},
			{chunked, "2\r\nhiX0\r\n\r\n", 400},
			{chunked, "2\r\nhi\r\n0\r\nno trailer\r\n\r\n", 400},
			{chunked, "5\r\nhi", 400},
			{"Content-Length: 5\r\n", "hi", 400},
		} {
			done = 0
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = io.WriteString(conn, method+" /v1/shout/work HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+testKey+"\r\n"+
				c.header+"\r\n"+c.body)
			if err != nil && c.want != 413 { // the server closes early
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			from := bufio.NewReader(conn)
			res, err := http.ReadResponse(from, &http.Request{Method: method})
			if err == nil && res.StatusCode == http.StatusContinue {
				res, err = http.ReadResponse(from, &http.Request{Method: method})
			}
			if err != nil {
				t.Fatalf("%s %q %.20q: %v", method, c.header, c.body, err)
			}
			if res.StatusCode != c.want || done == 1 != (c.want == 200) {
				t.Errorf("%s %q %.20q: %d, done %d times", method, c.header, c.body, res.StatusCode, done)
			}
		}
	}
}
