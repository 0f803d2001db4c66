package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/egress"
	"berth/egress/authority"
	"berth/proto"
)

// The secret of these tests and its placeholder.
const (
	secretValue = `s3cr"t/va+lue`
	secretShown = "berth-secret-0123456789"
)

// A recorder is a TLS server that records requests and repeats them in its answers.
type recorder struct {
	*httptest.Server
	port string

	mu   sync.Mutex
	seen []string
}

func newRecorder(t *testing.T, serve func(http.Handler) *httptest.Server) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = serve(http.HandlerFunc(r.answer))
	t.Cleanup(r.Close)
	_, r.port, _ = net.SplitHostPort(r.Listener.Addr().String())
	return r
}

func (r *recorder) answer(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/broken" {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "half of it")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	user, password, _ := req.BasicAuth()
	body, _ := io.ReadAll(req.Body)
	said := fmt.Sprintf("%s %s|%s|%s:%s|%s|%s", req.Host, req.RequestURI, req.Header.Get("X-Key"), user, password,
		req.Header.Get("Accept-Encoding"), body)
	r.mu.Lock()
	r.seen = append(r.seen, said)
	r.mu.Unlock()
	w.Header().Set("X-Echo", req.Header.Get("X-Key"))
	w.Header().Set(http.TrailerPrefix+"X-Late", req.Header.Get("X-Key"))
	switch req.URL.Path {
	case "/stream":
		for _, part := range []string{"first\n", "key " + req.Header.Get("X-Key")[:5], req.Header.Get("X-Key")[5:] +
			"\n"} {
			_, _ = io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
		<-req.Context().Done()
	case "/packed":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "packed")
		_ = z.Close()
	case "/json":
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "bad key " + req.Header.Get("X-Key")})
	default:
		_, _ = io.WriteString(w, said)
	}
}

func (r *recorder) sawNothing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen) == 0
}

func (r *recorder) last(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 {
		t.Fatal("the host saw nothing")
	}
	return r.seen[len(r.seen)-1]
}

// newAuthority returns an authority and a pool that trusts it.
func newAuthority(t *testing.T) (*authority.Authority, *x509.CertPool) {
	t.Helper()
	text, err := authority.New()
	if err != nil {
		t.Fatal(err)
	}
	a, err := authority.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(a.PEM()) {
		t.Fatal("the authority's certificate cannot be read")
	}
	return a, trusted
}

// TestHalfAnAnswerIsNotTheWhole checks that a client never takes a truncated answer for a complete one, even if the
// connection ends normally. When secrets are hidden, the length of the answer is unknown.
func TestHalfAnAnswerIsNotTheWhole(t *testing.T) {
	plain := newRecorder(t, httptest.NewServer)
	at := "example.com:" + plain.port
	s := newSite(t, Config{}, open, egress.Secret{Name: "KEY", Placeholder: secretShown, Value: secretValue,
		Hosts: []string{at}})
	s.names.Set("example.com", "127.0.0.1")
	for _, tt := range []struct {
		name, method, path, head, body string
		close                          bool
		err                            error
	}{
		{"kept", "GET", "/broken", "", "half of it", false, io.ErrUnexpectedEOF},
		{"closed", "GET", "/broken", "Connection: close\r\n", "half of it", true, io.ErrUnexpectedEOF},
		{"answered before all was asked", "POST", "/broken", "Content-Length: 10\r\n", "half of it", true,
			io.ErrUnexpectedEOF},
		{"whole and closed", "GET", "/json", "Connection: close\r\n", "{\"error\":\"bad key \"}\n", true, nil},
	} {
		c, r := s.dial()
		fmt.Fprintf(c, "%s http://%s%s HTTP/1.1\r\nHost: %[2]s\r\n%[4]s\r\n", tt.method, at, tt.path, tt.head)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		body, err := io.ReadAll(res.Body)
		if err != tt.err || string(body) != tt.body || res.Close != tt.close ||
			!slices.Equal(res.TransferEncoding, []string{"chunked"}) {
			t.Errorf("%s: %q, %v, close %t, %q", tt.name, body, err, res.Close, res.TransferEncoding)
		}
	}
}

// TestHalfAnAnswerToAnOlderClient checks answers that end with their connection. In TLS, a closing alert tells the
// client that the answer is complete.
func TestHalfAnAnswerToAnOlderClient(t *testing.T) {
	v := newVault(t, open, atPort)
	cfg := v.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	// in this version a record shows that it is an alert
	cfg.ServerName, cfg.MaxVersion = "example.com", tls.VersionTLS12
	for _, tt := range []struct {
		path, body string
		last       byte // kind of record
	}{{"/json", "{\"error\":\"bad key \"}\n", 21}, {"/broken", "half of it", 23}} {
		c, r := connect(v.site, "example.com:"+v.host.port)
		var seen bytes.Buffer
		inner := tls.Client(&readFrom{c, bufio.NewReader(io.TeeReader(r, &seen))}, cfg)
		fmt.Fprintf(inner, "GET %s HTTP/1.0\r\n\r\n", tt.path)
		text, err := io.ReadAll(inner) // Go ends in the same way without the alert
		var last byte
		for records := seen.Bytes(); len(records) >= 5; {
			last, records = records[0], records[5+int(binary.BigEndian.Uint16(records[3:])):]
		}
		if _, body, _ := strings.Cut(string(text), "\r\n\r\n"); err != nil || body != tt.body || last != tt.last {
			t.Errorf("%s: %q, %v, and the last record is of kind %d, want %d", tt.path, text, err, last, tt.last)
		}
	}
}

// A vault is a site with a secret for example.com, and a client that trusts only the proxy's authority.
type vault struct {
	*site
	host   *recorder
	client *http.Client
}

func newVault(t *testing.T, n proto.Network, hosts func(port string) []string) *vault {
	t.Helper()
	v := &vault{host: newRecorder(t, httptest.NewTLSServer)}
	a, trusted := newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(v.host.Certificate())
	v.site = newSite(t, Config{Authority: func() (*authority.Authority, error) { return a, nil }, Roots: roots}, n,
		egress.Secret{Name: "KEY", Placeholder: secretShown, Value: secretValue, Hosts: hosts(v.host.port)})
	v.names.Set("example.com", "127.0.0.1")
	v.names.Set("other.test", "127.0.0.1")
	v.client = v.site.client()
	v.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: trusted}
	return v
}

func atPort(port string) []string { return []string{"example.com:" + port} }

var open = proto.Network{Mode: proto.NetworkOpen}

// get requests a URL of the host. change may put the placeholder into the request.
func (v *vault) get(t *testing.T, path string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("GET", "https://example.com:"+v.host.port+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Key", secretShown)
	if change != nil {
		change(req)
	}
	res, err := v.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestSecretIsPutIn(t *testing.T) {
	v := newVault(t, open, atPort)
	res, body := v.get(t, "/a%20b/"+secretShown+"?k="+secretShown+"&x=1", func(r *http.Request) {
		r.SetBasicAuth("me", secretShown)
	})
	want := "example.com:" + v.host.port + " /a%20b/" + url.PathEscape(secretValue) + "?k=" + url.QueryEscape(
		secretValue) + "&x=1|" + secretValue + "|me:" + secretValue + "|identity|"
	if got := v.host.last(t); got != want {
		t.Errorf("the host saw %s\nwant %s", got, want)
	}
	if strings.Contains(body, secretValue) || strings.Contains(body, url.QueryEscape(secretValue)) ||
		strings.Count(body, secretShown) != 4 || res.Header.Get("X-Echo") != secretShown || len(res.Trailer) > 0 {
		t.Errorf("the client saw %s, X-Echo %q", body, res.Header.Get("X-Echo"))
	}
	if _, body := v.get(t, "/json", nil); body != `{"error":"bad key `+secretShown+"\"}\n" {
		t.Errorf("the client saw %s", body)
	}
	// Each request of a reused connection is reported.
	v.get(t, "/again", nil)
	visit := v.await("the end of the second", func(v egress.Report) bool { return v.Over && v.Method == "GET" })
	if !slices.Equal(visit.Secrets, []string{"KEY"}) || visit.Host != "example.com" || visit.Outcome != proto.AuditOK ||
		visit.Sent == 0 {
		t.Errorf("reported %+v", visit)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, visit := range v.visits {
		if text := fmt.Sprintf("%+v", visit); strings.Contains(text, secretValue) {
			t.Errorf("a visit has the secret: %s", text)
		}
	}
}

func TestSecretBodiesPass(t *testing.T) {
	v := newVault(t, open, atPort)
	v.get(t, "/", func(r *http.Request) {
		r.Method, r.Body, r.ContentLength = "POST", io.NopCloser(strings.NewReader("it is "+secretShown)),
			int64(len("it is "+secretShown))
	})
	if got := v.host.last(t); !strings.HasSuffix(got, "|it is "+secretShown) {
		t.Errorf("the host saw %s", got)
	}
	if _, body := v.get(t, "/packed", func(r *http.Request) {
		r.Header.Set("Accept-Encoding", "gzip")
	}); !strings.HasPrefix(body, "\x1f\x8b") {
		t.Errorf("a packed body came as %q", body)
	}
}

func TestSecretStreams(t *testing.T) {
	v := newVault(t, open, atPort)
	req, _ := http.NewRequest("GET", "https://example.com:"+v.host.port+"/stream", nil)
	req.Header.Set("X-Key", secretShown)
	res, err := v.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	want := "first\nkey " + secretShown + "\n"
	got := make([]byte, len(want))
	// the host sends no more and does not end its answer
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

func TestSecretGoesNowhereElse(t *testing.T) {
	v := newVault(t, open, atPort)
	other := newRecorder(t, httptest.NewTLSServer)
	plain := newRecorder(t, httptest.NewServer)
	pool := x509.NewCertPool()
	pool.AddCert(other.Certificate())
	client := v.site.client()
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: "example.com"}
	// The secret does not go to another port or another name, and not in clear text.
	for _, u := range []string{"https://example.com:" + other.port + "/", "http://example.com:" + plain.port + "/",
		"http://other.test:" + plain.port + "/"} {
		req, _ := http.NewRequest("GET", u, nil)
		req.Header.Set("X-Key", secretShown)
		res, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", u, err)
		}
		res.Body.Close()
		from := plain
		if req.URL.Scheme == "https" {
			from = other
		}
		if got := from.last(t); !strings.Contains(got, "|"+secretShown+"|") {
			t.Errorf("%s saw %s", u, got)
		}
	}
	// Inside the opened connection, a request to another host is refused.
	req, _ := http.NewRequest("GET", "https://example.com:"+v.host.port+"/", nil)
	req.Header.Set("X-Key", secretShown)
	req.Host = "other.test"
	res, err := v.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if !v.host.sawNothing() || res.StatusCode != 403 {
		t.Errorf("another Host header: %d", res.StatusCode)
	}
}

// TestSecretInClearText checks that a secret goes out in clear text only if its list names the port.
func TestSecretInClearText(t *testing.T) {
	plain := newRecorder(t, httptest.NewServer)
	for rule, want := range map[string]string{"example.com:" + plain.port: secretValue, "example.com": secretShown} {
		s := newSite(t, Config{}, open, egress.Secret{Name: "KEY", Placeholder: secretShown, Value: secretValue,
			Hosts: []string{rule}})
		s.names.Set("example.com", "127.0.0.1")
		req, _ := http.NewRequest("GET", "http://example.com:"+plain.port+"/", nil)
		req.Header.Set("X-Key", secretShown)
		res, err := s.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := plain.last(t); !strings.Contains(got, "|"+want+"|") {
			t.Errorf("%s: the host saw %s", rule, got)
		}
	}
}

// TestSecretNeedsTheRightHost checks that a host with a bad certificate gets no secret, and that a hello with another
// name is refused.
func TestSecretNeedsTheRightHost(t *testing.T) {
	v := newVault(t, open, atPort)
	v.gate.proxy.cfg.Roots = x509.NewCertPool()
	res, body := v.get(t, "/", nil)
	if res.StatusCode != 502 || !strings.Contains(body, "the certificate of example.com") || !v.host.sawNothing() {
		t.Errorf("an untrusted host: %d %s", res.StatusCode, body)
	}
	v.client.Transport.(*http.Transport).TLSClientConfig.ServerName = "other.test"
	if _, err := v.client.Get("https://example.com:" + v.host.port + "/"); err == nil {
		t.Error("another name in the hello was let through")
	}
	v.await("its end", func(v egress.Report) bool { return v.Over && v.Reason == "sni_mismatch" })

	// A client that does not trust the authority gets a certificate error.
	c := v.site.client()
	if _, err := c.Get("https://example.com:" + v.host.port + "/"); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client without the authority: %v", err)
	}
	v.await("its end", func(v egress.Report) bool { return v.Over && v.Reason == "client_tls" })
}

func TestAllowSecrets(t *testing.T) {
	p, err := New(Config{Most: proto.NetworkOpen, Authority: func() (*authority.Authority, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	list := proto.Network{Mode: proto.NetworkAllowlist, Allow: []string{"example.com", "*.star.test", "port.test:8443"}}
	one := func(value string, hosts ...string) map[string]proto.NetworkSecret {
		return map[string]proto.NetworkSecret{"KEY": {Value: value, Hosts: hosts}}
	}
	for _, tt := range []struct {
		name  string
		n     proto.Network
		asked map[string]proto.NetworkSecret
		says  string
	}{
		{"good", list, one("value", "Example.COM.", "example.com:443", "a.star.test", "*.star.test", "port.test:8443"),
			""},
		{"open", open, one("value", "anything.test"), ""},
		{"no network", proto.Network{}, one("value", "example.com"), "this has none"},
		{"short", list, one("val", "example.com"), "4 to 8192 bytes"},
		{"line end", list, one("val\r\nX: y", "example.com"), "cannot stand in the head"},
		{"blank", list, one("value ", "example.com"), "cannot stand in the head"},
		{"no hosts", list, one("value"), "needs 1 to 32 hosts"},
		{"URL", list, one("value", "https://example.com"), "has a scheme"},
		{"not listed", list, one("value", "other.test"), "other.test is not on the list"},
		{"other port", list, one("value", "example.com:8443"), "example.com:8443 is not on the list"},
		{"listed port", list, one("value", "port.test:443"), "is not on the list"},
		{"below", list, one("value", "a.b.star.test"), "is not on the list"},
		{"star", list, one("value", "*.example.com"), "is not on the list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			granted, err := p.AllowSecrets(tt.n, tt.asked)
			if tt.says == "" && err != nil || tt.says != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.says)) || err != nil &&
				strings.Contains(err.Error(), `"value`) {
				t.Errorf("%v, %v", granted, err)
			}
		})
	}
	granted, _ := p.AllowSecrets(list, one("value", "Example.COM.", "example.com:443"))
	if got := granted["KEY"].Hosts; !slices.Equal(got, []string{"example.com", "example.com:443"}) {
		t.Errorf("granted %v of %v", got, slices.Collect(maps.Keys(granted)))
	}
}

// TestTooManySecretsInARequest checks that repeated placeholders cannot make a request arbitrarily large.
func TestTooManySecretsInARequest(t *testing.T) {
	plain := newRecorder(t, httptest.NewServer)
	s := newSite(t, Config{}, open, egress.Secret{Name: "KEY", Placeholder: secretShown, Value: strings.Repeat(
		"v", 8<<10),
		Hosts: []string{"example.com:" + plain.port}})
	s.names.Set("example.com", "127.0.0.1")
	many := strings.Repeat(secretShown, 9)
	for what, change := range map[string]func(*http.Request){
		"header":   func(r *http.Request) { r.Header.Set("X-Key", many) },
		"password": func(r *http.Request) { r.SetBasicAuth("me", many) },
		"path":     func(r *http.Request) { r.URL.Path += many },
		"query":    func(r *http.Request) { r.URL.RawQuery = many },
	} {
		req, _ := http.NewRequest("GET", "http://example.com:"+plain.port+"/", nil)
		change(req)
		res, err := s.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !plain.sawNothing() {
			t.Errorf("%s: %d", what, res.StatusCode)
		}
	}
	s.refusedFor("head_too_large")
}
