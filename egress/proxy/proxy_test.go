package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/egress"
	"berth/egress/sniff"
	"berth/proto"
)

// allow returns an allow-list with these hosts.
func allow(list ...string) proto.Network {
	return proto.Network{Mode: proto.NetworkAllowlist, Allow: list}
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(b)
}

// TestPlainRequest checks that a plain request and its answer pass, that both are reported, and that the host does
// not get the headers between client and proxy.
func TestPlainRequest(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{}, allow(name+":"+port))
	s.names.Set(name, "127.0.0.1")
	body := strings.Repeat("x", 300_000)
	req, _ := http.NewRequest("POST", "http://WEB.example.:"+port+"/a?b=c", strings.NewReader(body))
	req.Header.Set("Proxy-Authorization", "Basic secret")
	req.Header.Set("Connection", "X-Hop")
	req.Header.Set("X-Hop", "1")
	req.Header.Set("X-Through", "1")
	res, err := s.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	head, _, _ := strings.Cut(string(text), "\r\n\r\n")
	if res.StatusCode != 200 || res.Header.Get("X-Host") != name+":"+port ||
		!strings.HasPrefix(head, "POST /a?b=c HTTP/1.1\r\n") || !strings.Contains(head, "X-Through: 1") ||
		strings.Contains(head, "secret") || strings.Contains(head, "X-Hop") || !strings.Contains(string(text), body) {
		t.Errorf("%d %s", res.StatusCode, head)
	}
	began := s.await("the begin", func(v egress.Report) bool { return v.Began })
	if began.Outcome != proto.AuditOK || began.Method != "POST" || began.Host != name ||
		fmt.Sprint(began.Port) != port || began.Address != "127.0.0.1" {
		t.Errorf("%+v", began)
	}
	if over := s.await("the end", func(v egress.Report) bool { return v.Over }); over.Outcome != proto.AuditOK ||
		over.Sent < 300_000 || over.Received < 300_000 || over.Seconds <= 0 {
		t.Errorf("%+v", over)
	}
}

// TestEachRequestIsJudged checks that each request of a connection is judged separately, and so is each redirect.
func TestEachRequestIsJudged(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{}, allow(name+":"+port, "inner.example:"+port))
	s.names.Set(name, "127.0.0.1")
	s.names.Set("inner.example", "127.0.0.2")
	c := s.client()
	for range 3 {
		if status, text := get(t, c, "http://"+name+":"+port+"/"); status != 200 ||
			!strings.HasPrefix(text, "GET / HTTP/1.1\r\nHost: "+name) {
			t.Fatalf("%d %s", status, text)
		}
	}
	for to, reason := range map[string]string{
		"http://127.0.0.1:" + port + "/": "not_allowed", "http://inner.example:" + port + "/": "private_address",
		"http://other.example/": "not_allowed", "http://169.254.169.254/latest": "not_allowed",
	} {
		if status, text := get(t, c, "http://"+name+":"+port+"/?to="+to); status != 403 {
			t.Errorf("a redirect to %s: %d %s", to, status, text)
		}
		s.refusedFor(reason)
	}
}

// raw sends bytes and reads one response.
func raw(s *site, text string) (int, string) {
	s.t.Helper()
	c, r := s.dial()
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

// TestRawRequests checks that requests that could be read in two ways are refused and reported.
func TestRawRequests(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{PerSecond: 1000, HeadTimeout: 300 * time.Millisecond}, allow(name+":"+port))
	s.names.Set(name, "127.0.0.1")
	host := name + ":" + port
	for _, tt := range []struct {
		send   string
		status int
		reason string
	}{
		{"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 200, ""},
		{"GET HTTP://" + strings.ToUpper(host) + "/ HTTP/1.1\r\nHost: " + name + ".:" + port + "\r\n\r\n", 200, ""},
		{"GET http://" + host + "/ HTTP/1.0\r\n\r\n", 200, ""},
		{"POST http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nExpect: 100-continue\r\nContent-Length: " +
			"2\r\n\r\nok", 100, ""},
		{"GET http://" + host + "/ HTTP/1.1\r\nHost: other.example\r\n\r\n", 403, "host_mismatch"},
		{"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nHost: other.example\r\n\r\n", 400, "bad_request"},
		{"GET http://" + host + "/ HTTP/1.1\r\n\r\n", 403, "host_mismatch"},
		{"GET http://user:pass@" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 400, "bad_target"},
		{"GET http://other.example@" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 400, "bad_target"},
		{"GET http://" + host + ":80/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 400, ""},
		{"GET http://2130706433:" + port + "/ HTTP/1.1\r\nHost: 2130706433:" + port + "\r\n\r\n", 400, "bad_target"},
		{"GET http://[::ffff:127.0.0.1]:" + port + "/ HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:" + port + "\r\n\r\n", 403,
			"not_allowed"},
		{"GET https://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 400, "bad_request"},
		{"GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 400, "bad_request"},
		{"GET file:///etc/passwd HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 400, "bad_request"},
		{"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nX: a\x00b\r\n\r\n", 400, "bad_request"},
		{"GET http://" + host + "/ HTTP/1.1\nHost: " + host + "\n\n", 400, "bad_request"},
		{"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nX: a\rHost: other\r\n\r\n", 400, "bad_request"},
		{"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n X: folded\r\n\r\n", 400, "bad_request"},
		{"GET http://" + host + "/ HTTP/1.1\r\nHost : " + host + "\r\n\r\n", 400, "bad_request"},
		{"POST http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 3\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n0\r\n\r\n", 400, "bad_request"},
		{"POST http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\nContent-Length: 3\r\n\r\n",
			400, "bad_request"},
		{"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nX: " + strings.Repeat("a", sniff.HeadBytes) +
			"\r\n\r\n",
			431, "head_too_large"},
		{"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nX: never", 504, "head_timeout"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request"},
		{"CONNECT " + host + " HTTP/1.1\r\nHost: other.example:443\r\n\r\n", 403, "host_mismatch"},
		{"CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 4\r\n\r\nGET ", 400, "bad_request"},
		{"CONNECT " + name + " HTTP/1.1\r\nHost: " + name + "\r\n\r\n", 400, "bad_target"},
		{"CONNECT http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 400, ""},
		{"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n", 403, "not_allowed"},
		{"CONNECT 127.0.0.1:" + port + " HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\n\r\n", 403, "not_allowed"},
		{"CONNECT u@" + host + " HTTP/1.1\r\n\r\n", 400, ""},
		{"nonsense\r\n\r\n", 400, "bad_request"},
	} {
		s.mu.Lock()
		s.visits = nil
		s.mu.Unlock()
		if status, text := raw(s, tt.send); status != tt.status {
			t.Errorf("%.150q: %d %s", tt.send, status, text)
			continue
		}
		if tt.status >= 400 {
			if v := s.await("a refusal", func(v egress.Report) bool {
				return !v.Began &&
					v.Outcome != proto.AuditOK
			}); tt.reason != "" && v.Reason != tt.reason || v.Note == "" {
				t.Errorf("%.150q: %+v", tt.send, v)
			}
		}
	}
}

// TestRefusalIsExplained checks that the status line of a refusal contains the reason, since clients look there.
func TestRefusalIsExplained(t *testing.T) {
	s := newSite(t, Config{}, allow("a.example"))
	c, r := s.dial()
	fmt.Fprintf(c, "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n")
	line, _ := r.ReadString('\n')
	if line != "HTTP/1.1 403 b.example:443 is not on this container's list; add \"b.example\" to its network.allow\r\n" {
		t.Errorf("%q", line)
	}
}

// TestRebinding checks that a name is resolved once for each request, and that the checked address is the one that is
// dialled. A name that changes its address in between gains nothing.
func TestRebinding(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{}, allow("*.evil.example:"+port, name+":"+port))
	s.names.Set("a.evil.example", "127.0.0.1", "127.0.0.2", "10.0.0.1", "169.254.169.254")
	c := s.client()
	if status, text := get(t, c, "http://a.evil.example:"+port+"/"); status != 200 ||
		s.names.Asked("a.evil.example") != 1 {
		t.Fatalf("%d after %d questions: %s", status, s.names.Asked("a.evil.example"), text)
	}
	for range 3 {
		if status, text := get(t, c, "http://a.evil.example:"+port+"/"); status != 403 {
			t.Errorf("%d %s", status, text)
		}
	}
	for host, answer := range map[string]string{
		"b": "127.0.0.1 127.0.0.2", "c": "127.0.0.1 ::1", "d": "::ffff:169.254.169.254", "e": "64:ff9b::a9fe:a9fe",
		"f": "2002:7f00:1::", "g": "fd00:ec2::254", "h": "0.0.0.0", "i": "::", "j": "100.64.1.1", "k": "224.0.0.1",
	} {
		s.names.Set(host+".evil.example", answer)
		if status, text := get(t, c, "http://"+host+".evil.example:"+port+"/"); status != 403 {
			t.Errorf("%s: %d %s", answer, status, text)
		}
	}
	if status, text := get(t, c, "http://none.evil.example:"+port+"/"); status != 502 ||
		s.refusedFor("no_such_host").Outcome != string(proto.NotFound) {
		t.Errorf("%d %s", status, text)
	}
	// Names that are not on the list are not resolved: a DNS question can carry data.
	if _, _ = get(t, c, "http://secret.other.example/"); s.names.Asked("secret.other.example") != 0 {
		t.Error("a name that may not be reached was resolved")
	}
}

// TestOpen checks that the open mode allows any public host and no private address.
func TestOpen(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{}, proto.Network{Mode: proto.NetworkOpen})
	s.names.Set(name, "127.0.0.1")
	s.names.Set("inner.example", "10.0.0.1")
	if status, text := get(t, s.client(), "http://"+name+":"+port+"/"); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	for _, host := range []string{"inner.example", "10.0.0.1", "[::1]", "169.254.169.254", "localhost"} {
		if status, text := get(t, s.client(), "http://"+host+"/"); status != 403 && status != 502 {
			t.Errorf("%s: %d %s", host, status, text)
		}
	}
}

// TestNoLogNoWay checks that no request goes out while the audit log cannot be written.
func TestNoLogNoWay(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{Ready: func() error { return errors.New("the disk is full") }}, allow(name+":"+port))
	s.names.Set(name, "127.0.0.1")
	if status, text := get(t, s.client(), "http://"+name+":"+port+"/"); status != 502 ||
		!strings.Contains(text, "cannot be audited") {
		t.Errorf("%d %s", status, text)
	}
}

// TestMost checks that the operator's limit holds when a container is created, and later.
func TestMost(t *testing.T) {
	for most, fits := range map[proto.NetworkMode]string{"": "none", proto.NetworkNone: "none",
		proto.NetworkAllowlist: "none allowlist", proto.NetworkOpen: "none allowlist open"} {
		p, err := New(Config{Most: most})
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []proto.NetworkMode{proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen} {
			_, err := p.AllowList(proto.Network{Mode: mode})
			if granted := strings.Contains(" "+fits+" ", " "+string(mode)+" "); granted != (err == nil) || err != nil &&
				proto.CodeOf(err) != proto.PermissionDenied {
				t.Errorf("%q of %q: %v", mode, most, err)
			}
			g := p.Gate(proto.Network{Mode: mode, Allow: nil}, nil, nil, func(egress.Report) {})
			if _, err := g.resolve(t.Context(), egress.Target{Name: "a.example", Port: 80}); err == nil {
				t.Errorf("%q of %q lets something through", mode, most)
			} else if most != proto.NetworkOpen && mode == proto.NetworkOpen &&
				egress.RefusalOf(err).Reason != "network_max" {
				t.Errorf("%q of %q: %v", mode, most, err)
			}
		}
	}
	p, _ := New(Config{Most: proto.NetworkOpen})
	for _, private := range []string{"10.0.0.1", "127.0.0.1:80", "[::1]:443", "169.254.169.254", "[::ffff:10.0.0.1]"} {
		if _, err := p.AllowList(allow(private)); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%s: %v", private, err)
		}
	}
	for _, bad := range []Config{{Most: "all"}, {Resolver: "1.1.1.1"}, {Resolver: ":53"}} {
		if _, err := New(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestLimits checks that a silent connection ends, that connections over the limit wait, and that all end with their
// gate.
func TestLimits(t *testing.T) {
	hold := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-hold }))
	defer srv.Close()
	defer close(hold)
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	s := newSite(t, Config{Connections: 2, IdleTimeout: 500 * time.Millisecond}, proto.Network{Mode: proto.NetworkOpen})
	s.names.Set("web.example", "127.0.0.1")
	begin := time.Now()
	first, firstReader := connect(s, "web.example:"+port)
	_, _ = connect(s, "web.example:"+port)
	third, r := s.dial() // waits for a free place
	fmt.Fprintf(third, "CONNECT web.example:%s HTTP/1.1\r\nHost: web.example:%s\r\n\r\n", port, port)
	if _, err := r.ReadString('\n'); err != nil || time.Since(begin) < 400*time.Millisecond {
		t.Errorf("the third was answered after %s, %v", time.Since(begin), err)
	}
	if _, err := io.ReadAll(firstReader); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("a silent connection: %v", err)
	}
	_ = first.Close()
	s.stop()
	if _, err := io.ReadAll(r); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("after the end: %v", err)
	}
}

// TestTrafficKeepsAlive checks that a connection with traffic stays open.
func TestTrafficKeepsAlive(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	const idle = 400 * time.Millisecond
	s := newSite(t, Config{IdleTimeout: idle}, proto.Network{Mode: proto.NetworkOpen})
	s.names.Set("web.example", "127.0.0.1")
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	c, r := connect(s, "web.example:"+port)
	tick := time.NewTicker(idle / 4)
	defer tick.Stop()
	for range 10 {
		<-tick.C
		fmt.Fprintln(c, "more")
		if line, err := r.ReadString('\n'); line != "more\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// TestAllConnections checks the limit for the connections of all containers together.
func TestAllConnections(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{All: 1, Connections: 10}, allow(name+":"+port))
	s.names.Set(name, "127.0.0.1")
	first, _ := connect(s, name+":"+port)
	answered := make(chan int, 1)
	go func() {
		status, _ := get(t, s.client(), "http://"+name+":"+port+"/")
		answered <- status
	}()
	select {
	case status := <-answered:
		t.Errorf("a second connection was served beside the only one: %d", status)
	case <-time.After(200 * time.Millisecond):
	}
	_ = first.Close()
	if status := <-answered; status != 200 {
		t.Errorf("then it was answered %d", status)
	}
}

// TestRate checks the limit of requests per second of one container.
func TestRate(t *testing.T) {
	name, port := echo(t)
	s := newSite(t, Config{PerSecond: 5}, allow(name+":"+port)) // 20 at once
	s.names.Set(name, "127.0.0.1")
	begin := time.Now()
	for range 25 {
		if status, text := get(t, s.client(), "http://"+name+":"+port+"/"); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
	}
	if took := time.Since(begin); took < 900*time.Millisecond {
		t.Errorf("25 requests took %s", took)
	}
}

// host starts a server that reads the head of each request, sends a text, and continues to read.
func host(t *testing.T, says string) (port string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for line := ""; line != "\r\n"; {
					if line, err = r.ReadString('\n'); err != nil {
						return
					}
				}
				_, _ = io.WriteString(c, says)
				_, _ = io.Copy(io.Discard, r)
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return port
}

// TestWhereAnswersEnd checks that a client gets only framing that its HTTP version knows, and no body after a head
// that announces none.
func TestWhereAnswersEnd(t *testing.T) {
	const pieces = "Transfer-Encoding: chunked\r\n"
	whole := "HTTP/1.1 200 OK\r\n" + pieces + "\r\n6\r\nonetwo\r\n0\r\n\r\n"
	for _, tt := range []struct{ says, method, version, want string }{
		{whole, "GET", "1.1", whole},
		{whole, "GET", "1.0", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nonetwo"},
		{whole, "HEAD", "1.1", "HTTP/1.1 200 OK\r\n" + pieces + "\r\n"},
		{whole, "HEAD", "1.0", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "HEAD", "1.0", "HTTP/1.1 200 OK\r\nConnection: " +
			"close\r\nContent-Length: 7\r\n\r\n"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "GET", "1.0", "HTTP/1.1 200 OK\r\nConnection: " +
			"close\r\nContent-Length: 2\r\n\r\nok"},
		{"HTTP/1.1 204 No Content\r\n" + pieces + "\r\n", "GET", "1.1", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"HTTP/1.1 204 No Content\r\n\r\n", "HEAD", "1.1", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"HTTP/1.1 204 No Content\r\n" + pieces + "\r\n", "GET", "1.0", "HTTP/1.1 204 No Content\r\nConnection: " +
			"close\r\n\r\n"},
		{"HTTP/1.1 304 Not Modified\r\n" + pieces + "\r\n", "GET", "1.1", "HTTP/1.1 304 Not Modified\r\n\r\n"},
		{"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", "HEAD", "1.1",
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"},
	} {
		port := host(t, tt.says)
		s := newSite(t, Config{}, open)
		s.names.Set("web.example", "127.0.0.1")
		c, r := s.dial()
		fmt.Fprintf(c, "%s http://web.example:%s/ HTTP/%s\r\nHost: web.example:%[2]s\r\n\r\n", tt.method, port,
			tt.version)
		_ = c.CloseWrite()
		if got, err := io.ReadAll(r); err != nil || string(got) != tt.want {
			t.Errorf("%s %s of %q: %q, %v; want %q", tt.method, tt.version, tt.says, got, err, tt.want)
		}
	}
}

// TestSwitchBeforeTheBodyIsSent checks a host that switches protocols while the proxy still sends it a body. The
// client's connection keeps a single reader, and the client gets the refusal.
func TestSwitchBeforeTheBodyIsSent(t *testing.T) {
	for _, tt := range []struct {
		name, head, reason string
	}{
		{"unasked", "", "failed"},
		{"asked", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "bad_request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port := host(t, "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			s := newSite(t, Config{}, proto.Network{Mode: proto.NetworkOpen})
			s.names.Set("web.example", "127.0.0.1")
			for range 5 {
				c, r := s.dial()
				fmt.Fprintf(c, "POST http://web.example:%s/ HTTP/1.1\r\nHost: web.example:%s\r\n%sContent-Length: "+
					"400000\r\n\r\n", port, port, tt.head)
				if tt.head == "" {
					_, _ = c.Write(make([]byte, 20_000)) // the proxy waits for the rest while the host answers
				}
				res, err := http.ReadResponse(r, nil)
				if err != nil || res.StatusCode < 400 || !strings.HasSuffix(res.Header.Get("Proxy-Status"), "error="+
					tt.reason) {
					t.Fatalf("%v, %v", res, err)
				}
				for range 19 {
					_, _ = c.Write(make([]byte, 20_000))
				}
				_ = c.CloseWrite()
				if b, err := io.ReadAll(r); err != nil {
					t.Errorf("%d bytes, and then %v", len(b), err)
				}
			}
		})
	}
}

// A frail connection panics at a certain read or write.
type frail struct {
	egress.Conn
	reads, writes int
}

func (c *frail) Read(b []byte) (int, error) {
	if c.reads--; c.reads == 0 {
		panic("a bad read")
	}
	return c.Conn.Read(b)
}

func (c *frail) Write(b []byte) (int, error) {
	if c.writes--; c.writes == 0 {
		panic("a bad write")
	}
	return c.Conn.Write(b)
}

// TestPanicEndsItsVisitor checks that a panic in any goroutine of a connection ends that connection and is logged.
func TestPanicEndsItsVisitor(t *testing.T) {
	port := host(t, "hello")
	listed, all := allow("web.example:"+port), proto.Network{Mode: proto.NetworkOpen}
	at := "web.example:" + port
	connect := "CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\n\r\n"
	for _, tt := range []struct {
		name, says string
		n          proto.Network
		conn       frail
	}{
		{"serving", connect, all, frail{writes: 1}},
		{"tunnel from the client", connect, all, frail{reads: 2}},
		{"tunnel from the host", connect + "\r\n", all, frail{writes: 2}},
		{"waiting for the client's first word", connect, listed, frail{reads: 2}},
		{"a body", "POST http://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\nContent-Length: 10\r\n\r\n", all,
			frail{reads: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var said bytes.Buffer
			s := newSite(t, Config{Log: slog.New(slog.NewTextHandler(&said, nil))}, tt.n)
			s.names.Set("web.example", "127.0.0.1")
			client, proxy := pair(t)
			served := make(chan struct{})
			go func() {
				defer close(served)
				tt.conn.Conn = proxy
				s.gate.Serve(t.Context(), &tt.conn)
			}()
			_, _ = io.WriteString(client, tt.says)
			if _, err := io.Copy(io.Discard, client); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client: %v", err)
			}
			<-served
			if !strings.Contains(said.String(), "a bad ") || !strings.Contains(said.String(), "proxy_test.go") {
				t.Errorf("the log: %s", said.String())
			}
		})
	}
}

// pair returns both ends of a connection.
func pair(t *testing.T) (client, proxy *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	p, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), p.(*net.TCPConn)
}

// TestChangeMeetsConnections changes the network while connections are made. Each that began has one end, and every
// report names its host.
func TestChangeMeetsConnections(t *testing.T) {
	port := host(t, "")
	listed := allow("127.0.0.1:" + port)
	s := newSite(t, Config{PerSecond: 1000}, listed)
	done := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				s.gate.Change(allow("other.example"))
				s.gate.Change(listed)
			}
		}
	})
	for range 200 {
		c, r := s.dial()
		fmt.Fprintf(c, "CONNECT 127.0.0.1:%s HTTP/1.1\r\n\r\n", port)
		_, _ = http.ReadResponse(r, &http.Request{Method: "CONNECT"}) // allowed or not
		c.Close()
	}
	close(done)
	changes.Wait()
	s.await("the last end", func(egress.Report) bool {
		open := 0
		for _, v := range s.visits {
			switch {
			case v.Began:
				open++
			case v.Over:
				open--
			}
		}
		return open == 0 && len(s.visits) >= 200
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.visits {
		if v.Host != "127.0.0.1" || v.Port == 0 || v.Method != "CONNECT" {
			t.Fatalf("%+v", v)
		}
	}
}
