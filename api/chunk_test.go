package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
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
