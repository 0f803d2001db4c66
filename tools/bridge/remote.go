package bridge

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"berth/proto"
	"berth/tools/bridge/mcpclient"
)

// A remote is a server that answers calls of one container.
type remote interface {
	source
	tools(ctx context.Context) (map[string]*tool, error)
	close()
}

// server returns the container's server and its tools. It connects at the first use.
func (d *dispatcher) server(ctx context.Context) (remote, map[string]*tool, *Failure) {
	r, err := d.connect()
	if err != nil {
		return nil, nil, fail(RuntimeError, "the server that answers calls cannot be used: %s",
			proto.AsError(err).Message)
	}
	tools, err := r.tools(ctx)
	if err != nil {
		d.b.cfg.Log.Warn("asking a server for its tools", "container", d.s.ID(), "error", err)
		return nil, nil, fail(RuntimeError, "the server that answers calls does not say which tools it has; its "+
			"owner can see why in what the server logs")
	}
	return r, tools, nil
}

// connect returns the container's server without dialling it.
func (d *dispatcher) connect() (remote, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.remote != nil {
		return d.remote, nil
	}
	p, err := d.s.ToolProvider()
	if err != nil {
		return nil, err
	}
	if d.b.cfg.Dial == nil {
		return nil, proto.Errorf(proto.PermissionDenied, "", "", "the daemon sends calls to no server any more")
	}
	client := d.b.httpClient(p.Headers)
	if p.Type == proto.ProviderMCP {
		wants := func(name string) bool {
			return slices.ContainsFunc(d.s.CodeTools().Allow, func(t proto.AllowedTool) bool { return t.Name == name })
		}
		d.remote = &mcpServer{client: mcpclient.New(mcpclient.Config{URL: p.URL, Client: client, MaxBytes: maxResult +
			aroundInput, Wants: wants}), desk: d}
		return d.remote, nil
	}
	list := make([]Tool, len(p.Tools))
	for i, s := range p.Tools {
		list[i] = toolOf(s)
	}
	tools, err := prepareAll("tools", list)
	if err != nil {
		return nil, err
	}
	d.remote = &callback{url: p.URL, secret: []byte(p.Secret), client: client, list: tools}
	return d.remote, nil
}

// httpClient reaches the servers that the operator allows. It follows no redirect, since a redirect may lead to
// another host.
func (b *Bridge) httpClient(headers map[string]string) *http.Client {
	return &http.Client{
		Transport: headed{headers, &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return b.cfg.Dial(ctx, network, addr)
			},
			MaxIdleConns: 4, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// headed sets headers on each request.
type headed struct {
	headers map[string]string
	next    *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(h.headers) > 0 {
		r = r.Clone(r.Context())
		for name, value := range h.headers {
			r.Header.Set(name, value)
		}
	}
	return h.next.RoundTrip(r)
}

// CloseIdleConnections closes connections that are not in use.
func (h headed) CloseIdleConnections() { h.next.CloseIdleConnections() }

// A callback is a server that gets each call as a POST.
type callback struct {
	url    string
	secret []byte
	client *http.Client
	list   map[string]*tool
}

func (c *callback) tools(context.Context) (map[string]*tool, error) { return c.list, nil }

func (c *callback) close() { c.client.CloseIdleConnections() }

// Headers of a request to a server: its time, and the signature of time and body.
const (
	HeaderTimestamp = "Berth-Timestamp" // seconds since 1970
	HeaderSignature = "Berth-Signature" // "sha256=" and, in hex, the HMAC-SHA-256 of timestamp, "." and body
)

// sign returns the signature of a body.
func sign(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.", timestamp)
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// answer posts a call, once.
func (c *callback) answer(ctx context.Context, one *call) ([]byte, *Failure) {
	body, err := json.Marshal(one.shown())
	if err != nil {
		return nil, fail(RuntimeError, "the call of %s cannot be written", one.rec.Tool)
	}
	// a body that cannot be sent twice is not retried
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, fail(RuntimeError, "the server's URL cannot be used")
	}
	req.ContentLength = int64(len(body))
	now := strconv.FormatInt(time.Now().Unix(), 10)
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json",
		"User-Agent": "berth", HeaderTimestamp: now, HeaderSignature: sign(c.secret, now, body)} {
		req.Header.Set(name, value)
	}
	res, err := c.client.Do(req)
	if ctx.Err() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fail(RuntimeError, "the server that answers %s cannot be reached", one.rec.Tool)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fail(RuntimeError, "the server that answers %s said %d", one.rec.Tool, res.StatusCode)
	}
	return readAnswer(ctx, one, res.Body)
}

// takes reads the result of a call and reserves memory for it.
type takes struct {
	r    io.Reader
	call *call
}

// Read implements io.Reader. It fails when no memory is left.
func (t takes) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if full := t.call.take(n); full != nil {
		return 0, full
	}
	return n, err
}

// readAnswer reads a server's answer: a result or an error.
func readAnswer(ctx context.Context, one *call, r io.Reader) ([]byte, *Failure) {
	name := one.rec.Tool
	body, err := io.ReadAll(takes{io.LimitReader(r, maxResult+aroundInput+1), one})
	switch {
	case ctx.Err() != nil:
		return nil, nil
	case errors.Is(err, errNoRoom):
		return nil, noRoom(name)
	case err != nil:
		return nil, fail(RuntimeError, "the answer of the server that answers %s broke off", name)
	}
	var said struct {
		Result json.RawMessage `json:"result"`
		Error  *Failure        `json:"error"`
	}
	err = json.Unmarshal(body, &said)
	switch {
	case len(body) > maxResult+aroundInput || len(said.Result) > maxResult:
		return nil, fail(RuntimeError, "the result of %s has more than %d bytes, which is the limit", name, maxResult)
	case err != nil || said.Error == nil && said.Result == nil:
		return nil,
			fail(RuntimeError,
				`the server that answers %s said neither {"result": …} nor {"error": {"type", "message"}}`, name)
	case said.Error != nil:
		return nil, said.Error.bounded()
	}
	return said.Result, nil
}

// An mcpServer is a server that speaks the Model Context Protocol.
type mcpServer struct {
	client *mcpclient.Client
	desk   *dispatcher

	mu    sync.Mutex // guards ready
	ready map[string]listed
}

// A listed is a tool as the server lists it, and in the form that calls need; nil: it cannot be called.
type listed struct {
	spec proto.ToolSpec
	tool *tool
}

// as reports whether the server lists it unchanged.
func (l listed) as(s proto.ToolSpec) bool {
	return l.spec.Description == s.Description && bytes.Equal(l.spec.InputSchema, s.InputSchema) &&
		bytes.Equal(l.spec.OutputSchema, s.OutputSchema)
}

func (m *mcpServer) close() { m.client.Close() }

// tools returns those of the server's tools that code may call.
func (m *mcpServer) tools(ctx context.Context) (map[string]*tool, error) {
	specs, err := m.client.Tools(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]*tool{}
	for _, allowed := range m.desk.s.CodeTools().Allow {
		if s, ok := specs[allowed.Name]; ok {
			if t := m.prepared(s); t != nil {
				out[allowed.Name] = t
			}
		}
	}
	return out, nil
}

// prepared returns a tool in the form that calls need. It is made once for as long as the server lists it unchanged.
// A tool that cannot be called counts as missing.
func (m *mcpServer) prepared(s proto.ToolSpec) *tool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok := m.ready[s.Name]; ok && l.as(s) {
		return l.tool
	}
	t, err := prepare("tools", toolOf(s))
	if err != nil {
		m.desk.b.cfg.Log.Warn("a server lists a tool that cannot be called", "container", m.desk.s.ID(), "tool", s.Name,
			"error", err)
		t = nil
	}
	if m.ready == nil {
		m.ready = map[string]listed{}
	}
	m.ready[s.Name] = listed{s, t}
	return t
}

// answer has the server answer a call.
func (m *mcpServer) answer(ctx context.Context, one *call) ([]byte, *Failure) {
	result, refused, err := m.client.Call(ctx, one.rec.Tool, one.input, one.take)
	switch {
	case ctx.Err() != nil:
		return nil, nil
	case errors.Is(err, errNoRoom):
		return nil, noRoom(one.rec.Tool)
	case err != nil:
		m.desk.b.cfg.Log.Warn("calling a tool of a server", "container", one.rec.ContainerID, "call", one.rec.ID,
			"error", err)
		return nil, fail(RuntimeError, "the server that answers %s failed", one.rec.Tool)
	case refused != "":
		return nil, fail(RuntimeError, "%s", refused)
	case len(result) > maxResult:
		return nil, fail(RuntimeError, "the result of %s has more than %d bytes, which is the limit", one.rec.Tool,
			maxResult)
	}
	return result, nil
}
