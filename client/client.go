// Package client is a Go client for berth's HTTP API: the native edge, the Files API and the Skills API.
//
// It imports package proto, which has the wire types, and no other package of berth. The command line uses it too.
//
// # Requests
//
// New makes a Client for one daemon. Each method sends one request; methods that return a list read all its pages.
// Live opens a websocket on which commands run with live input and output, and Stream follows one command. A Sandbox
// has what most programs need of one container; FromEnv finds the daemon. Packages terminal and functions, below this
// one, have terminals and functions that code calls. A Client is safe for concurrent use. Cancel a request through its
// context.
//
// # Errors
//
// An error that the daemon answers with is a *proto.Error with the daemon's code and message. It is a *MissingError
// if something does not exist. Other errors are:
//
//   - *DialError: no daemon answers at the host.
//   - *UntrustedError: the daemon's certificate is not trusted.
//   - *proto.Error with code Unavailable: the connection broke.
//
// By default the client repeats no request, because a repeated POST could do its work twice. Set an idempotency key in
// proto.CreateContainer or proto.Cmd to retry safely. The only exception is Stdin: it sends a piece of input again if
// the daemon refused it for its rate limit.
//
// With Config.Wait, the client waits for a daemon that is away and repeats requests that may come twice. It gives
// Create, Launch and Run an idempotency key for that, and begins pulls anew. A command of Live goes on if Returning has
// prepared it. Code ends with the daemon: in a container of its own and without a network it begins anew (see RunCode),
// else its request fails with the code Unavailable.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// A Config says which daemon to talk to.
type Config struct {
	Host  string // "http://127.0.0.1:7117"; "host:port" alone is http
	Key   string // API key; "" sends none
	Agent string // User-Agent; "" is Go's
	CA    []byte // PEM certificates to trust, and no others; nil: those of the system, and CAToo
	CAToo []byte // PEM certificates to trust in addition to the system's
	// The trace context of all requests, as W3C defines the headers traceparent and tracestate; "" sends none.
	TraceParent, TraceState string
	// How long a request waits for a daemon that went away, as while it restarts; 0: not at all. The first request
	// waits for a second at most.
	Wait    time.Duration
	Waiting func() // called once by each request that has waited for two seconds; nil: nothing is called
	// Within Wait, also wait where the daemon refuses a request for a limit and says for how long.
	WaitForRate bool
}

// A Client talks to one daemon. It is safe for concurrent use.
type Client struct {
	cfg    Config
	base   *url.URL
	http   *http.Client
	dialer *websocket.Dialer
	met    *atomic.Bool // the daemon has answered before
}

// New checks cfg and returns a client. It does not connect.
func New(cfg Config) (*Client, error) {
	base, err := parseHost(cfg.Host)
	if err != nil {
		return nil, err
	}
	// A clone, so that the settings below do not affect other users of the default transport.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// All requests go to one host. The default keeps only two idle connections to it.
	transport.MaxIdleConnsPerHost = 8
	if transport.TLSClientConfig, err = cfg.tls(); err != nil {
		return nil, err
	}
	return &Client{
		cfg: cfg, base: base, met: new(atomic.Bool),
		http: &http.Client{
			Transport: transport,
			// The API never redirects. Following a redirect could send the key to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		// A clone of the TLS configuration: the transport adds HTTP/2 to its protocols, and the dialer speaks
		// HTTP/1.1 only.
		dialer: &websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: 2 * time.Minute,
			ReadBufferSize: 64 << 10, TLSClientConfig: transport.TLSClientConfig.Clone()},
	}, nil
}

// Key returns the API key that the client sends.
func (c *Client) Key() string { return c.cfg.Key }

// As returns a client of the same daemon with another API key. Both share connections: the key is sent with each
// request.
func (c *Client) As(key string) *Client {
	other := *c
	other.cfg.Key = key
	return &other
}

// Apart returns a client of the same daemon that shares no connection with this one.
func (c *Client) Apart() (*Client, error) { return New(c.cfg) }

// Host returns the daemon's base URL.
func (c *Client) Host() string { return c.base.String() }

// parseHost parses a host as users write it. It refuses a URL with a password or a query, because neither would be
// used.
func parseHost(host string) (*url.URL, error) {
	text := host
	if !strings.Contains(text, "://") {
		// Plain HTTP: a daemon on loopback without a certificate speaks that.
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, proto.Errorf(proto.InvalidArgument, "", "host", "the host %q is not a URL such as "+
			"http://127.0.0.1:7117", host)
	}
	// The path stays: a proxy may serve the daemon below a path.
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// A request is one API call. body is sent as JSON. raw, if set, is sent unchanged.
type request struct {
	method string
	path   string // escaped; see at
	query  url.Values
	body   any
	raw    io.Reader
	size   int64 // bytes of raw; 0 is unknown
	header map[string]string
	again  bool // may be repeated after its connection broke; not with raw
}

// repeatable reports whether the request may be sent again: it only reads, or again says so.
func (r request) repeatable() bool { return r.again || r.method == http.MethodGet }

// at joins the parts of a path and escapes each, so that no ID can address another endpoint.
func at(parts ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// url returns the URL of a request. path is escaped already: url.JoinPath would remove ".." from an ID instead of
// sending it.
func (c *Client) url(path string, query url.Values) string {
	u := c.base.String() + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	return u
}

// headers sets the headers of every request.
func (c *Client) headers(h http.Header) {
	if c.cfg.Key != "" {
		h.Set("X-Api-Key", c.cfg.Key)
	}
	if c.cfg.Agent != "" {
		h.Set("User-Agent", c.cfg.Agent)
	}
	if c.cfg.TraceParent != "" {
		h.Set("Traceparent", c.cfg.TraceParent)
	}
	if c.cfg.TraceState != "" {
		h.Set("Tracestate", c.cfg.TraceState)
	}
}

// send sends the request. It returns an answer with a 2xx status, whose body the caller closes, or an error.
func (c *Client) send(ctx context.Context, r request) (res *http.Response, err error) {
	err = c.whileAway(ctx, r.repeatable(), func() error {
		res, err = c.sendOnce(ctx, r)
		return err
	})
	return res, err
}

// sendOnce does the work of send without waiting for a daemon that is away.
func (c *Client) sendOnce(ctx context.Context, r request) (*http.Response, error) {
	req, err := c.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	c.met.Store(true)
	// A redirect is an error too, since the client follows none.
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, c.failure(res)
	}
	return res, nil
}

// worthAsking is the size in bytes above which the client asks the daemon before it sends a body.
const worthAsking = 1 << 20

// prepare builds the HTTP request.
func (c *Client) prepare(ctx context.Context, r request) (*http.Request, error) {
	body := r.raw
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	// The caller closes its reader. If an answer comes early, net/http would close it, and a writer to a pipe would
	// see that error instead of the answer.
	if _, closes := body.(io.Closer); closes {
		body = io.NopCloser(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url(r.path, r.query), body)
	if err != nil {
		return nil, err
	}
	c.headers(req.Header)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.raw != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
		if r.size == 0 || r.size > worthAsking {
			req.Header.Set("Expect", "100-continue") // a refused request then uploads nothing
		}
		// With a length, the daemon can refuse a large body before it is sent, and detects a truncated one. Without,
		// the body is sent in chunks.
		if r.size > 0 {
			req.ContentLength = r.size
		}
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	return req, nil
}

// call sends the request and decodes the JSON answer into out. out may be nil.
func (c *Client) call(ctx context.Context, r request, out any) (status int, err error) {
	err = c.whileAway(ctx, r.repeatable(), func() error {
		status, err = c.callOnce(ctx, r, out)
		return err
	})
	return status, err
}

// callOnce does the work of call without waiting for a daemon that is away.
func (c *Client) callOnce(ctx context.Context, r request, out any) (status int, err error) {
	res, err := c.sendOnce(ctx, r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, res.Body) // the connection can then be used again
		return res.StatusCode, c.broken(ctx, err)
	}
	return res.StatusCode, c.decode(ctx, res.Body, out)
}

// decode decodes a JSON answer. An answer that cannot be decoded comes from another server or from another version.
// If ctx has ended, decode returns its error, because that interrupted the answer.
func (c *Client) decode(ctx context.Context, r io.Reader, out any) error {
	err := json.NewDecoder(r).Decode(out)
	var op *net.OpError
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op):
		return c.broken(ctx, err)
	}
	return proto.Errorf(proto.Unavailable, "", c.Host(), "the answer of %s cannot be read (%v); is it a berth "+
		"daemon of this version?", c.Host(), err)
}

// get sends a GET request and decodes the JSON answer.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (out T, err error) {
	_, err = c.call(ctx, request{method: http.MethodGet, path: path, query: query}, &out)
	return out, err
}

// list sends a GET request and returns the items of the answer.
func list[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	page, err := get[struct {
		Data []T `json:"data"`
	}](ctx, c, path, query)
	return page.Data, err
}

// post sends JSON and decodes the JSON answer. A nil body is sent as an empty object, which every endpoint accepts.
func post[T any](ctx context.Context, c *Client, path string, body any) (out T, err error) {
	return submit[T](ctx, c, path, body, false)
}

// submit works like post. again says that the request may be repeated after its connection broke.
func submit[T any](ctx context.Context, c *Client, path string, body any, again bool) (out T, err error) {
	if body == nil {
		body = struct{}{}
	}
	_, err = c.call(ctx, request{method: http.MethodPost, path: path, body: body, again: again}, &out)
	return out, err
}

// patch sends JSON in a PATCH request and decodes the JSON answer.
func patch[T any](ctx context.Context, c *Client, path string, body any) (out T, err error) {
	_, err = c.call(ctx, request{method: http.MethodPatch, path: path, body: body, again: true}, &out)
	return out, err
}

// put works like patch.
func put[T any](ctx context.Context, c *Client, path string, body any) (out T, err error) {
	_, err = c.call(ctx, request{method: http.MethodPut, path: path, body: body, again: true}, &out)
	return out, err
}

// do sends a request without a query and ignores the content of the answer. A POST request has an empty object, which
// every endpoint accepts.
func (c *Client) do(ctx context.Context, method, path string) error {
	r := request{method: method, path: path}
	if method == http.MethodPost {
		r.body = struct{}{}
	}
	_, err := c.call(ctx, r, nil)
	return err
}

// chosen builds a query from values and a limit. Empty values are left out. Limit 0 means the daemon's default.
func chosen(values map[string]string, limit int) url.Values {
	q := url.Values{}
	for name, value := range values {
		if value != "" {
			q.Set(name, value)
		}
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}

// tls returns the TLS configuration with the CAs that the client trusts. Verification cannot be turned off: use CA
// for a private certificate.
func (c Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	// With CA, no other CA is trusted: a public CA could sign a certificate for the same host.
	case c.CA != nil:
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, proto.Errorf(proto.InvalidArgument, "", "ca", "the CA file holds no PEM certificate")
		}
	case c.CAToo != nil:
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		// A file without a certificate is no error here. It is used in addition to the system's CAs, and the
		// handshake reports a missing one.
		roots.AppendCertsFromPEM(c.CAToo)
		t.RootCAs = roots
	}
	return t, nil
}
