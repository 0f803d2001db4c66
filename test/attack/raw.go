package attack

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// maxAnswer is how many bytes of an answer to a raw request are read. An endless answer must not fill this program's
// memory.
const maxAnswer = 16 << 20

// An Answer is the daemon's answer to a raw request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // at most the first 16 MiB
}

// Raw makes one HTTP request on a new connection and adds nothing to it: the key is sent only if header has it.
// target is the path and query as they are on the wire, beginning with a single slash. Raw follows no redirect. It
// returns an error only if the connection fails.
func (t *Target) Raw(ctx context.Context, method, target string, header http.Header, body io.Reader) (*Answer, error) {
	// A new connection each time, so that one request cannot affect the next.
	req, err := http.NewRequestWithContext(ctx, method, t.Host, body)
	if err != nil {
		return nil, err
	}
	req.URL.Opaque = target // keeps the dots, slashes and escapes that a parser would normalize
	if header != nil {
		req.Header = header
	}
	res, err := rawTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return &Answer{res.StatusCode, res.Header, data}, err
}

// rawTransport keeps no connection and trusts any certificate: an attacker need not check it.
var rawTransport = &http.Transport{
	DisableKeepAlives: true, DisableCompression: true,
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec
}

// KeyHeader returns a header with the target's API key.
func (t *Target) KeyHeader() http.Header { return http.Header{"X-Api-Key": {t.Key}} }

// Dial connects to the daemon, for bytes that no HTTP library would send. It uses TLS if the daemon does. Reads and
// writes fail after limit.
func (t *Target) Dial(ctx context.Context, limit time.Duration) (net.Conn, error) {
	u, err := url.Parse(t.Host)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme // the resolver knows the names of both ports
	}
	var dialer interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	} = &net.Dialer{}
	if u.Scheme == "https" {
		dialer = &tls.Dialer{Config: rawTransport.TLSClientConfig}
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
