package command

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestReadAnswer(t *testing.T) {
	for _, c := range []struct{ name, raw, want, err string }{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore", "ok", ""},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\no\r\n1\r\nk\r\n0\r\n\r\n", "ok", ""},
		{"to the end", "HTTP/1.0 200 OK\r\n\r\nok", "ok", ""},
		{"lower case", "HTTP/1.1 200\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", ""},
		{"short", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "", "broke"},
		{"half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", "", "broke"},
		{"no last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "", "broke"},
		{"nothing", "", "", "broke"},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-", "", "broke"},
		{"empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", "broke"},
		{"a bad size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nok", "", "HTTP"},
		{"a bad length", "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok", "", "HTTP"},
		{"another protocol", "SSH-2.0-x\r\n", "", "HTTP"},
		{"a long line", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHeadLine) + "\r\n\r\n", "", "HTTP"},
		{"many fields", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 2*maxFields) + "\r\n", "", "HTTP"},
		{"much", "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", maxBody+1), "", "more than"},
		{"refused", "HTTP/1.1 401 No\r\n\r\n{\"error\": {\"type\": \"authentication_error\", \"message\": \"who?\"}}",
			"", "PermissionError: who?"},
		{"a type", "HTTP/1.1 400 No\r\n\r\n{\"error\": {\"type\": \"NameError\", \"message\": \"no\"}}", "",
			"NameError: no"},
		{"no words", "HTTP/1.1 500 No\r\n\r\noops", "", "RuntimeError: the daemon answered with status 500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readAnswer(bufio.NewReader(strings.NewReader(c.raw)))
			if string(got) != c.want || (err == nil) != (c.err == "") || err != nil &&
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("%q %v, want %q %q", got, err, c.want, c.err)
			}
			if c.err == "broke" && !errors.Is(err, errBroken) {
				t.Errorf("it is not tried again after %v", err)
			}
		})
	}
}

// Requests are retried for a fixed time from the moment that the daemon goes, each time that it goes.
func TestPatienceBeginsWhenTheDaemonGoes(t *testing.T) {
	// how long a connection lasts before it breaks, and for how long all others break at once
	type outage struct{ after, lasts time.Duration }
	for _, c := range []struct {
		name    string
		outages []outage
		answer  bool
	}{
		{"a call that took a day", []outage{{24 * time.Hour, 0}}, true},
		{"outages hours apart", []outage{{time.Hour, patience - time.Minute}, {time.Hour, patience - time.Minute}},
			true},
		{"a daemon that does not come back", []outage{{time.Hour, 2 * patience}}, false},
		{"no daemon at all", []outage{{0, 2 * patience}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := fakeClock(t)
			// the requests are sequential, but handlers of broken connections may still run
			var mu sync.Mutex
			var gone, back time.Duration // of the last outage
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if time.Duration(clock.Load()) >= back {
					if len(c.outages) == 0 {
						_, _ = io.WriteString(w, "here")
						return
					}
					gone = time.Duration(clock.Add(int64(c.outages[0].after)))
					back, c.outages = gone+c.outages[0].lasts, c.outages[1:]
				}
				panic(http.ErrAbortHandler)
			}))
			got, err := Run{URL: srv.URL}.request("POST", "/v1/calls", []byte("{}"))
			srv.Close()
			mu.Lock()
			waited := time.Duration(clock.Load()) - gone
			mu.Unlock()
			if c.answer && (string(got) != "here" || err != nil) {
				t.Errorf("%q %v, %s after the daemon went", got, err, waited)
			}
			if !c.answer && (!errors.Is(err, errBroken) || waited < patience || waited > patience+2*longestPause) {
				t.Errorf("%q %v, %s after the daemon went", got, err, waited)
			}
		})
	}
}

// fakeClock replaces the package's clock by one that only sleep advances, and returns how far it is.
func fakeClock(t *testing.T) *atomic.Int64 {
	var passed atomic.Int64
	began := time.Now()
	now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
	sleep = func(d time.Duration) { passed.Add(int64(d)) }
	t.Cleanup(func() { now, sleep = time.Now, time.Sleep })
	return &passed
}

func FuzzReadAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\no\r\n1\r\nk\r\n0\r\n\r\n")
	f.Add("HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n{}")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := readAnswer(bufio.NewReader(strings.NewReader(raw)))
		if err == nil && (len(got) == 0 || len(got) > len(raw)) {
			t.Errorf("%d bytes of %d", len(got), len(raw))
		}
	})
}
