package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/egress"
	"berth/proto"
)

// secure starts a TLS server on 127.0.0.1. It returns a client configuration that trusts the server.
func secure(t *testing.T) (port string, client *tls.Config) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "secure ", r.Host)
	}))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port, s.Client().Transport.(*http.Transport).TLSClientConfig
}

// connect opens a tunnel.
func connect(s *site, target string) (*net.TCPConn, *bufio.Reader) {
	s.t.Helper()
	c, r := s.dial()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	res, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil || res.StatusCode != 200 {
		s.t.Fatalf("CONNECT %s: %v %v", target, res, err)
	}
	return c, r
}

// TestHello checks that a TLS hello must name the host of the CONNECT request.
func TestHello(t *testing.T) {
	port, trust := secure(t)
	s := newSite(t, Config{}, allow("example.com:"+port, "127.0.0.1:"+port))
	s.names.Set("example.com", "127.0.0.1")
	for _, tt := range []struct{ target, sni, reason string }{
		{"example.com", "example.com", ""}, {"example.com", "EXAMPLE.com", ""}, {"127.0.0.1", "", ""},
		{"example.com", "other.example", "sni_mismatch"}, {"example.com", "a.example.com", "sni_mismatch"},
		{"example.com", "", "no_sni"}, {"127.0.0.1", "example.com", "sni_mismatch"},
	} {
		s.mu.Lock()
		s.visits = nil
		s.mu.Unlock()
		c, _ := connect(s, tt.target+":"+port)
		cfg := trust.Clone()
		cfg.ServerName, cfg.InsecureSkipVerify = tt.sni, true
		tc := tls.Client(c, cfg)
		err := tc.Handshake()
		if tt.reason == "" {
			if err != nil {
				t.Errorf("%+v: %v", tt, err)
				continue
			}
			fmt.Fprintf(tc, "GET / HTTP/1.0\r\n\r\n")
			if b, err := io.ReadAll(tc); err != nil || !strings.Contains(string(b), "secure") {
				t.Errorf("%+v: %s %v", tt, b, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "access denied") {
			t.Errorf("%+v: the handshake ended with %v", tt, err)
		}
		if v := s.refusedFor(tt.reason); v.Sent != 0 || v.Outcome != string(proto.PermissionDenied) {
			t.Errorf("%+v: %+v", tt, v)
		}
	}
}

// TestHTTPInTunnel checks that each HTTP request inside a tunnel needs the target's name in its Host header.
func TestHTTPInTunnel(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{}, allow(name+":"+port, "other.example:"+port))
	s.names.Set(name, "127.0.0.1")
	host := name + ":" + port
	c, r := connect(s, host)
	for i, tt := range []struct {
		line, host string
		status     int
	}{{"GET /1", host, 200}, {"GET http://" + host + "/2", host, 200}, {"GET /3", "other.example:" + port, 403}} {
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\n\r\n", tt.line, tt.host)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != tt.status {
			t.Fatalf("request %d: %v %v", i, res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
	}
	s.refusedFor("host_mismatch")
	for _, trick := range []string{"\r\nGET / HTTP/1.1\r\nHost: other.example:" + port + "\r\n\r\n",
		"GET /\xff HTTP/1.1\r\nHost: other.example:" + port + "\r\n\r\n", "GET http://other.example:" + port +
			"/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
		"GET http://other.example:" + port + "/ HTTP/1.1\r\nHost: other.example:" + port + "\r\n\r\n"} {
		c, r := connect(s, host)
		_, _ = io.WriteString(c, trick)
		// otherwise the answer is the host's
		if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode < 400 ||
			res.Header.Get("Proxy-Status") == "" {
			t.Errorf("%q: %v %v", trick, res, err)
		}
	}
}

// TestOtherProtocols checks that other protocols pass at listed ports, whichever side sends first and whichever side
// ends first.
func TestOtherProtocols(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	banner := make(chan string, 1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, <-banner)
				b, _ := io.ReadAll(c) // until the client has ended its side
				fmt.Fprintf(c, "%d bytes", len(b))
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	s := newSite(t, Config{}, allow("git.example:"+port))
	s.names.Set("git.example", "127.0.0.1")
	for _, first := range []string{"SSH-2.0-Server\r\n", ""} {
		for _, says := range []string{"SSH-2.0-Client with HTML\r\n" + strings.Repeat("z", 1<<20), "\x00\x01\x02" +
			strings.Repeat("z", 1<<20)} {
			c, r := connect(s, "git.example:"+port)
			banner <- first
			if first != "" {
				if line, _ := r.ReadString('\n'); line != first {
					t.Fatalf("%q", line)
				}
			}
			_, _ = io.WriteString(c, says)
			_ = c.CloseWrite()
			if b, err := io.ReadAll(r); err != nil || string(b) != fmt.Sprintf("%d bytes", len(says)) {
				t.Errorf("%.20q, %.20q: %q %v", first, says, b, err)
			}
		}
	}
}

// TestWebPortsAreForTheWeb checks that only TLS and HTTP pass at ports 80 and 443, whichever side sends first.
func TestWebPortsAreForTheWeb(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:443")
	if err != nil {
		t.Skip("port 443 is not to be had here: ", err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	s := newSite(t, Config{HeadTimeout: 2 * time.Second}, allow("web.example"))
	s.names.Set("web.example", "127.0.0.1")
	for _, says := range []string{"SSH-2.0-Client\r\n", "\x00\x01", "\x16\x03\x01\x00\x05hello"} {
		c, r := connect(s, "web.example:443")
		_, _ = io.WriteString(c, says)
		if b, err := io.ReadAll(r); strings.Contains(string(b), says[:2]) && says[0] != 0x16 ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q came back as %q, %v", says, b, err)
		}
	}
	s.refusedFor("not_web")
	s.refusedFor("bad_hello")
}

// socks sends a SOCKS request and returns the code of the answer.
func socks(s *site, request string) (byte, *net.TCPConn, *bufio.Reader) {
	s.t.Helper()
	c, r := s.dial()
	_, _ = io.WriteString(c, "\x05\x02\x00\x02"+request)
	b := make([]byte, 12)
	if _, err := io.ReadFull(r, b); err != nil {
		s.t.Fatalf("%q: %v", request, err)
	}
	return b[3], c, r
}

func TestSOCKS(t *testing.T) {
	port, trust := secure(t)
	s := newSite(t, Config{}, allow("example.com:"+port))
	s.names.Set("example.com", "127.0.0.1")
	var n int
	_, _ = fmt.Sscan(port, &n)
	at := string([]byte{byte(n >> 8), byte(n)})
	for request, want := range map[string]byte{
		"\x05\x01\x00\x03\x0bexample.com" + at: 0, "\x05\x01\x00\x03\x0bexample.org" + at: 2,
		"\x05\x01\x00\x01\x7f\x00\x00\x01" + at: 2, "\x05\x01\x00\x03\x06127.1\x00" + at: 2,
		"\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x7f\x00\x00\x01" + at: 2,
		"\x05\x02\x00\x03\x0bexample.com" + at:                                            7,
		"\x05\x03\x00\x03\x0bexample.com" + at:                                            7, "\x05\x01\x00\x03\x00" +
			at: 2, "\x05\x01\x00\x09" + at: 2,
		"\x05\x01\x00\x03\x0bexample.com\x00\x00": 2,
	} {
		got, c, r := socks(s, request)
		if got != want {
			t.Errorf("%q: %d", request, got)
		}
		if got == 0 {
			cfg := trust.Clone()
			cfg.ServerName = "example.com"
			tc := tls.Client(&readFrom{c, r}, cfg)
			fmt.Fprintf(tc, "GET / HTTP/1.0\r\n\r\n")
			if b, err := io.ReadAll(tc); err != nil || !strings.Contains(string(b), "secure") {
				t.Errorf("%s %v", b, err)
			}
		}
	}
	if v := s.await("it", func(v egress.Report) bool { return v.Began }); v.Method != "SOCKS5" ||
		v.Host != "example.com" {
		t.Errorf("%+v", v)
	}
}

// readFrom is a connection whose reader has read ahead.
type readFrom struct {
	net.Conn
	r *bufio.Reader
}

func (c *readFrom) Read(b []byte) (int, error) { return c.r.Read(b) }

// TestStreams checks that a websocket passes, and that streamed data is forwarded as it comes.
func TestStreams(t *testing.T) {
	more := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "websocket" {
			c, rw, _ := w.(http.Hijacker).Hijack()
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
				"websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
			line, _ := rw.ReadString('\n')
			_, _ = io.WriteString(c, "got "+line)
			return
		}
		fmt.Fprintln(w, "first")
		w.(http.Flusher).Flush()
		<-more
		fmt.Fprintln(w, "second")
	}))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	s := newSite(t, Config{}, allow("web.example:"+port))
	s.names.Set("web.example", "127.0.0.1")
	res, err := s.client().Get("http://web.example:" + port + "/")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(res.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("%q %v", line, err)
	}
	close(more)
	if line, err := lines.ReadString('\n'); line != "second\n" {
		t.Fatalf("%q %v", line, err)
	}
	res.Body.Close()

	c, r := s.dial()
	fmt.Fprintf(c, "GET http://web.example:%s/ HTTP/1.1\r\nHost: web.example:%s\r\nConnection: keep-alive, "+
		"Upgrade\r\nUpgrade: websocket\r\n\r\n", port, port)
	res, err = http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") == "" {
		t.Fatalf("%v %v", res, err)
	}
	fmt.Fprintln(c, "hello")
	if line, _ := r.ReadString('\n'); line != "got hello\n" {
		t.Errorf("%q", line)
	}
}
