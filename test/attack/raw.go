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

// maxAnswer bounds what is read of an answer to a raw request, in bytes.
// An attack that has the daemon answer without end must not fill the attacker's own memory.
const maxAnswer = 16 << 20

// An Answer is what the daemon said to a raw request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the first 16 MiB
}

// Raw makes one HTTP request on a connection of its own, and sends what it is given and no more: the key only if
// header has it. Target is path and query as they stand on the wire, beginning with a single slash. No redirect is
// followed. The error is the connection's.
func (t *Target) Raw(ctx context.Context, method, target string, header http.Header, body io.Reader) (*Answer, error) {
	// A new connection each time: what one request breaks must not be felt by the next.
	req, err := http.NewRequestWithContext(ctx, method, t.Host, body)
	if err != nil {
		return nil, err
	}
	req.URL.Opaque = target // kept as it is, with the dots, slashes and escapes that a parser would tidy up
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

// rawTransport keeps no connection and trusts any certificate: an attacker sees no reason to check it.
var rawTransport = &http.Transport{
	DisableKeepAlives: true, DisableCompression: true,
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec
}

// KeyHeader is a header with the target's API key.
func (t *Target) KeyHeader() http.Header { return http.Header{"X-Api-Key": {t.Key}} }

// Dial connects to the daemon, for what no HTTP library would send. Reads and writes fail after limit.
// It speaks TLS where the daemon does, and is otherwise what nc would give.
func (t *Target) Dial(ctx context.Context, limit time.Duration) (net.Conn, error) {
	u, err := url.Parse(t.Host)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme // the resolver knows both names
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
