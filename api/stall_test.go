package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stallSite serves with so little patience that a test can wait for it to end.
func stallSite(t *testing.T, routes ...Route) *httptest.Server {
	t.Helper()
	s, err := New(Config{Auth: oneKey(testKey), Edges: []Edge{{Dialect: Plain, Routes: routes}},
		Stall: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv
}

func connect(t *testing.T, srv *httptest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Deadlines are for one read or write each. A handler that works for longer, and a connection that was
// idle for longer, are none of their business, not even with an answer that has no body.
func TestDeadlinesDoNotOutliveWhatTheyAreFor(t *testing.T) {
	srv := stallSite(t, Route{Method: "POST", Pattern: "/slow", Where: None,
		Handle: func(w http.ResponseWriter, r *http.Request,
			_ Caller) error {
			data, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			select {
			case <-r.Context().Done():
				return r.Context().Err()
			case <-time.After(300 * time.Millisecond): // three times the stall
			}
			if len(data) == 0 {
				w.WriteHeader(http.StatusNoContent)
				return nil
			}
			_, err = w.Write(data)
			return err
		}})
	conn := connect(t, srv)
	answers := bufio.NewReader(conn)
	for _, body := range []string{"x", "", "y", ""} {
		fmt.Fprintf(conn, "POST /slow HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n%s", testKey,
			len(body), body)
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("body %q: %v", body, err)
		}
		if got, _ := io.ReadAll(res.Body); string(got) != body || res.StatusCode >= 300 {
			t.Fatalf("body %q: %d %q", body, res.StatusCode, got)
		}
	}
}

func TestSlowBodyIsEnded(t *testing.T) {
	srv := stallSite(t, Route{Method: "POST", Pattern: "/read", Where: None,
		Handle: func(w http.ResponseWriter, r *http.Request,
			_ Caller) error {
			_, err := io.ReadAll(r.Body)
			return err
		}})
	conn := connect(t, srv)
	fmt.Fprintf(conn, "POST /read HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: 100\r\n\r\nsome", testKey)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(res.Body); res.StatusCode != 504 || !strings.Contains(string(body), "stalled") {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
}

// A refused request is answered although its body never comes.
func TestUnreadBodyDoesNotHoldTheAnswer(t *testing.T) {
	srv := stallSite(t, Route{Method: "POST", Pattern: "/never", Where: None,
		Handle: func(http.ResponseWriter, *http.Request,
			Caller) error {
			return nil
		}})
	conn := connect(t, srv)
	fmt.Fprint(conn, "POST /never HTTP/1.1\r\nHost: x\r\nX-Api-Key: wrong\r\nContent-Length: 100\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 401 {
		t.Fatalf("%v, %v", res, err)
	}
}

// A client that does not take what it asked for is let go, with a file as with any other answer.
func TestSlowReaderIsLetGo(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big")
	if err := os.Truncate(mustCreate(t, big), 1<<30); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	srv := stallSite(t,
		Route{Method: "GET", Pattern: "/file", Where: None,
			Handle: func(w http.ResponseWriter, _ *http.Request, _ Caller) error {
				f, err := os.Open(big)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = io.CopyN(w, f, 1<<30)
				over <- err
				return err
			}},
		Route{Method: "GET", Pattern: "/text", Where: None,
			Handle: func(w http.ResponseWriter, _ *http.Request, _ Caller) error {
				for {
					if _, err := w.Write(make([]byte, 64<<10)); err != nil {
						over <- err
						return err
					}
				}
			}})
	for _, path := range []string{"/file", "/text"} {
		conn := connect(t, srv)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n\r\n", path, testKey)
		if err := <-over; err == nil {
			t.Errorf("%s: a client that read nothing got it all", path)
		}
	}
}

// However long a large answer takes, whoever reads on gets all of it, also where a handler writes it at once.
func TestSteadyReaderGetsAll(t *testing.T) {
	const size = 64 << 20
	s, err := New(Config{Auth: oneKey(testKey), Stall: 500 * time.Millisecond,
		Edges: []Edge{{Dialect: Plain, Routes: []Route{
			{Method: "GET", Pattern: "/large", Where: None,
				Handle: func(w http.ResponseWriter, _ *http.Request, _ Caller) error {
					_, err := w.Write(make([]byte, size))
					return err
				}},
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	conn := connect(t, srv)
	fmt.Fprintf(conn, "GET /large HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n\r\n", testKey)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	// a piece in a sixth of the stall, all of it in more than twice the stall
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for left := int64(size); left > 0; left -= 1 << 20 {
		<-pace.C
		if _, err := io.CopyN(io.Discard, res.Body, 1<<20); err != nil {
			t.Fatalf("with %d bytes to come: %v", left, err)
		}
	}
}

func mustCreate(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
