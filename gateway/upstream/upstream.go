// Package upstream sends Messages requests to the servers that have the models.
//
//	Set        finds the upstream of a model: the longest prefix of its name wins
//	send       one HTTP request: connections are reused, nothing is sent twice, silence has a limit
//	messages   an upstream that speaks the Messages dialect gets the request as it came
//	openai     one that speaks chat completions gets the request translated, and its answer is translated back
//
// A Response is always in the Messages dialect. If an upstream refuses a request, that is an answer, and it is passed
// on with its status. An error means that there is no answer.
package upstream

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"berth/gateway/upstream/answer"
	"berth/proto"
	"berth/proto/span"
)

// Dialects of upstreams.
const (
	KindMessages = "messages"
	KindOpenAI   = "openai"
)

// Paths of requests.
const (
	PathMessages    = "/v1/messages"
	PathCountTokens = "/v1/messages/count_tokens"
)

// A Config configures one upstream.
type Config struct {
	Name string // shown in messages and logs after the word "upstream"; "" is the host of URL
	URL  string // base URL: request paths are appended to it
	Kind string // "" is KindMessages
	// Prefixes selects the models by the beginning of their names; none, or "", selects all. A prefix that ends in /
	// is removed before the upstream sees the model.
	Prefixes []string

	Key string // "": the caller's key is passed on
	// reports whether a key is one of berth's, which is never passed on; nil: those that begin with berth_
	Own func(key string) bool

	// Timeout limits the time until the headers of an answer come. 0 is 10 minutes, which is enough for an unstreamed
	// answer of the slowest model.
	Timeout     time.Duration
	IdleTimeout time.Duration // maximum time between bytes of an answer; 0 is 5 min

	Proxy func(*http.Request) (*url.URL, error) // HTTP proxy to the upstream; nil: none
}

const (
	defaultTimeout     = 10 * time.Minute
	defaultIdleTimeout = 5 * time.Minute
)

// A Request is a Messages request. Do removes headers that are not meant for the upstream.
type Request struct {
	Method string // "" is POST
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte

	// Pieces is used in place of Body if it is set: the body in pieces, each valid until the next one. They may be
	// asked for again until the answer is closed. BodyName returns the name of the model in it. About is roughly how
	// many bytes they have.
	Pieces iter.Seq[[]byte]
	About  int
}

// Whole returns the body in one piece.
func (r Request) Whole() []byte {
	if r.Pieces == nil {
		return r.Body
	}
	whole := make([]byte, 0, r.About)
	for piece := range r.Pieces {
		whole = append(whole, piece...)
	}
	return whole
}

// Any reports whether is holds for one of the pieces.
func (r Request) Any(is func([]byte) bool) bool {
	for piece := range r.Pieces {
		if is(piece) {
			return true
		}
	}
	return false
}

// A Set holds all upstreams. It is safe for concurrent use.
type Set struct {
	list      atomic.Pointer[[]*Upstream]
	transport *http.Transport
	log       *slog.Logger
}

// An Upstream serves some of the models.
type Upstream struct {
	cfg         Config
	base        *url.URL
	transport   *http.Transport
	log         *slog.Logger
	translating chan struct{} // has room for as many requests as are translated at a time
}

// Open checks the configuration of the upstreams and connects to none. It refuses two upstreams with the same prefix.
func Open(list []Config, log *slog.Logger) (*Set, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Set{log: log, transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
	}}
	if err := s.Replace(list); err != nil {
		return nil, err
	}
	return s, nil
}

// Replace makes other upstreams the set's. Requests that are under way end with the upstream that they began with. If
// it fails, the set stays as it is.
func (s *Set) Replace(list []Config) error {
	seen := map[string]bool{}
	all := make([]*Upstream, 0, len(list))
	for _, cfg := range list {
		u, err := newUpstream(cfg, s.transport, s.log)
		if err != nil {
			return err
		}
		for _, p := range u.cfg.Prefixes {
			if seen[p] {
				return invalid("two upstreams have the models %s; give one of them another prefix", modelsOf(p))
			}
			seen[p] = true
		}
		all = append(all, u)
	}
	if old := s.list.Swap(&all); old != nil {
		for _, u := range *old {
			u.transport.CloseIdleConnections()
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", "upstream", format, args...)
}

func newUpstream(cfg Config, transport *http.Transport, log *slog.Logger) (*Upstream, error) {
	base, err := url.Parse(cfg.URL)
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, invalid("the URL of an upstream must be like https://api.example.com, or " +
			"openai+http://127.0.0.1:8080/v1 for one that speaks chat completions")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, invalid("the URL of the upstream %s must hold no user, query or fragment; keys go into the file "+
			"of upstream keys", base.Host)
	}
	cfg.Name, cfg.Kind = cmp.Or(cfg.Name, base.Host), cmp.Or(cfg.Kind, KindMessages)
	if cfg.Kind != KindMessages && cfg.Kind != KindOpenAI {
		return nil, invalid("the upstream %s is of the kind %q; there are %s and %s", cfg.Name, cfg.Kind, KindMessages,
			KindOpenAI)
	}
	cfg.Timeout, cfg.IdleTimeout = cmp.Or(cfg.Timeout, defaultTimeout), cmp.Or(cfg.IdleTimeout, defaultIdleTimeout)
	if len(cfg.Prefixes) == 0 {
		cfg.Prefixes = []string{""}
	}
	if cfg.Own == nil {
		cfg.Own = func(key string) bool { return strings.HasPrefix(key, "berth_") }
	}
	if cfg.Proxy != nil {
		transport = transport.Clone()
		transport.Proxy = cfg.Proxy
	}
	base.Path = basePath(cfg.Kind, base.Path)
	return &Upstream{cfg: cfg, base: base, transport: transport, log: log,
		translating: make(chan struct{}, runtime.GOMAXPROCS(0))}, nil
}

// basePath returns the base path for requests. Operators write /v1 or omit it, as other programs expect it. Paths of
// Messages requests include /v1; those of chat completions do not.
func basePath(kind, path string) string {
	path = strings.TrimRight(path, "/")
	if kind == KindMessages {
		return strings.TrimSuffix(path, "/v1")
	}
	return cmp.Or(path, "/v1")
}

// Close closes idle connections.
func (s *Set) Close() error {
	s.transport.CloseIdleConnections()
	for _, u := range s.All() {
		u.transport.CloseIdleConnections()
	}
	return nil
}

// For returns the upstream of a model.
func (s *Set) For(model string) (*Upstream, error) {
	var best *Upstream
	longest := -1
	list := s.All()
	for _, u := range list {
		for _, p := range u.cfg.Prefixes {
			if strings.HasPrefix(model, p) && len(p) > longest {
				best, longest = u, len(p)
			}
		}
	}
	switch {
	case best != nil:
		return best, nil
	case len(list) == 0:
		return nil, proto.Errorf(proto.NotFound, "", "model", "No upstream is configured, so no model can be asked; "+
			"the operator of the daemon gives one with --upstream.")
	}
	var models []string
	for _, u := range list {
		for _, p := range u.cfg.Prefixes {
			models = append(models, modelsOf(p))
		}
	}
	slices.Sort(models)
	return nil, proto.Errorf(proto.NotFound, "", "model", "No upstream has the model %q; there are %s.",
		answer.Short(model), strings.Join(models, ", "))
}

// All returns the upstreams in the order of their configuration.
func (s *Set) All() []*Upstream { return *s.list.Load() }

// Kind returns the dialect of the upstream.
func (u *Upstream) Kind() string { return u.cfg.Kind }

// Prefix returns the first of the prefixes that select the upstream's models. No other upstream has it.
func (u *Upstream) Prefix() string { return u.cfg.Prefixes[0] }

// HasKey reports whether all callers use one key of the operator. Otherwise each caller's own key is passed on.
func (u *Upstream) HasKey() bool { return u.cfg.Key != "" }

// modelsOf returns the pattern of the models that a prefix selects.
func modelsOf(prefix string) string { return prefix + "*" }

// Do sends a request and returns its answer. The caller closes the body. The answer is in the Messages dialect: JSON,
// or events if the request asks for a stream. An answer with a status of 400 or more has the error envelope. An error
// is a *proto.Error with the code Unavailable, TimedOut or Canceled.
func (u *Upstream) Do(ctx context.Context, r Request) (*http.Response, error) {
	if u.cfg.Kind == KindOpenAI {
		return u.doChat(ctx, r)
	}
	content := r.Pieces
	switch {
	case content != nil:
	case r.Method != "" && r.Method != http.MethodPost:
		content = inOnePiece(r.Body)
	default:
		content = inOnePiece(u.cutModel(r.Body))
	}
	return u.passed(u.send(ctx, cmp.Or(r.Method, http.MethodPost), r.Path, r.Query, u.header(r.Header), content))
}

// passed makes an error of a Messages upstream readable for every client.
func (u *Upstream) passed(res *http.Response, err error) (*http.Response, error) {
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		return u.failed(res, messagesError), nil
	}
	return res, err
}

// Refusal returns an error that came in place of an answer as if the upstream had refused with its status. kind is the
// type of the error in body.
func Refusal(kind string, h http.Header, body []byte) *http.Response {
	return answer.JSONResponse(answer.StatusOf(kind), h, body)
}

// get makes one GET request.
func (u *Upstream) get(ctx context.Context, path string, query url.Values, h http.Header) (*http.Response, error) {
	h.Del("Content-Type")
	return u.send(ctx, http.MethodGet, path, query, h, inOnePiece(nil))
}

// send makes one HTTP request and sends it once. net/http repeats it only if a reused connection was already closed
// and no byte of the request was written. path is escaped.
func (u *Upstream) send(ctx context.Context, method, path string, query url.Values, h http.Header,
	content iter.Seq[[]byte]) (*http.Response, error) {
	to := *u.base.JoinPath(path)
	to.RawQuery = query.Encode()
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, invalid("the request to %s cannot be made", u.cfg.Name)
	}
	req.Header = h
	span.ToHeader(ctx, h)
	out := &outgoing{content: content}
	out.attach(req)
	timer := time.AfterFunc(u.cfg.Timeout, func() {
		cancel(u.errorf(proto.TimedOut, "did not begin to answer within %v", u.cfg.Timeout))
	})
	res, err := u.transport.RoundTrip(req)
	timer.Stop()
	if err != nil {
		out.end()
		err = u.explain(ctx, err, "gave no answer")
		cancel(nil)
		return nil, err
	}
	res.Body = &body{u: u, ctx: ctx, cancel: cancel, src: res.Body, out: out}
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		_ = res.Body.Close()
		return nil, u.errorf(proto.Unavailable, "answers with a redirect (%d), which is not followed; the operator "+
			"of the daemon has to give --upstream the URL that it leads to", res.StatusCode)
	}
	cleanAnswer(res.Header)
	if res.Header.Get("Content-Encoding") == "gzip" { // some proxies compress although the request forbids it
		res.Header.Del("Content-Encoding")
		res.Header.Del("Content-Length")
		res.Body, res.ContentLength = &gzipBody{u: u, src: res.Body}, -1
	}
	return res, nil
}

func (u *Upstream) errorf(code proto.Code, format string, args ...any) *proto.Error {
	return proto.Errorf(code, "", "upstream", "The upstream "+u.cfg.Name+" "+format+".", args...)
}

// explain converts a failure to the error that the caller gets. The log gets the original error.
func (u *Upstream) explain(ctx context.Context, err error, what string) error {
	var own *proto.Error
	switch cause := context.Cause(ctx); {
	case errors.As(err, &own), errors.As(cause, &own):
		return own
	case errors.Is(cause, context.DeadlineExceeded):
		return u.errorf(proto.TimedOut, "%s in time", what)
	case cause != nil:
		return proto.Errorf(proto.Canceled, "", "upstream",
			"The request was canceled before the upstream %s had answered.", u.cfg.Name)
	}
	u.log.Warn("an upstream failed", "upstream", u.cfg.Name, "host", u.base.Host, "error", err)
	return u.errorf(proto.Unavailable, "%s: %s", what, reason(err))
}

// reason describes a failed connection without revealing details of the internal network.
func reason(err error) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "its name cannot be resolved"
	case errors.As(err, &cert):
		return "its certificate is not trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it cannot be connected to in time"
	}
	return "the connection broke"
}

// A body is the body of an answer. It limits the time of each read.
type body struct {
	u      *Upstream
	ctx    context.Context
	cancel context.CancelCauseFunc
	src    io.ReadCloser
	out    *outgoing // of the request
	closed atomic.Bool
}

// Read returns a *proto.Error if the answer breaks off.
func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.u.cfg.IdleTimeout, func() {
		b.cancel(b.u.errorf(proto.TimedOut, "broke off: nothing came for %v", b.u.cfg.IdleTimeout))
	})
	n, err := b.src.Read(p)
	timer.Stop()
	if err == nil || err == io.EOF || b.closed.Load() {
		return n, err
	}
	return n, b.u.explain(b.ctx, err, "broke off its answer")
}

// endTime and endSize limit how long, and for how many bytes, Close waits for the end of the body. The end of a
// stream may come a moment after its last event.
const (
	endTime = 100 * time.Millisecond
	endSize = 4 << 10
)

// Close makes the connection reusable if the body ends soon, and closes the connection otherwise.
func (b *body) Close() error {
	b.closed.Store(true)
	timer := time.AfterFunc(endTime, func() { b.cancel(nil) })
	_, _ = io.CopyN(io.Discard, b.src, endSize) // if the body has not ended by then, src.Close closes the connection
	timer.Stop()
	err := b.src.Close()
	b.out.end()
	b.cancel(nil)
	return err
}

// A gzipBody decompresses a body while it is read.
type gzipBody struct {
	u   *Upstream
	src io.ReadCloser
	out *gzip.Reader // nil until the first Read
}

// Read returns a *proto.Error if the answer breaks off.
func (p *gzipBody) Read(b []byte) (n int, err error) {
	if p.out == nil {
		p.out, err = gzip.NewReader(p.src)
	}
	if err == nil {
		n, err = p.out.Read(b)
	}
	var own *proto.Error
	if err == nil || err == io.EOF || errors.As(err, &own) {
		return n, err
	}
	return n, p.u.errorf(proto.Unavailable, "sent an answer that cannot be unpacked")
}

// Close closes the compressed body.
func (p *gzipBody) Close() error { return p.src.Close() }

// maxFault is how many bytes of an error body are read.
const maxFault = 1 << 20

// failed converts an error answer to the Messages dialect. read decodes the body in the upstream's dialect. A body
// that read cannot decode, such as a proxy's error page, becomes the text of the message.
func (u *Upstream) failed(res *http.Response, read func(text []byte) (envelope []byte, ok bool)) *http.Response {
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxFault)) // if the read fails, the message shows what was read
	_ = res.Body.Close()
	envelope, ok := read(text)
	if !ok {
		envelope = answer.NewFault(res.StatusCode, "The upstream %s answered %d: %s", u.cfg.Name, res.StatusCode,
			answer.OneLine(text)).Envelope()
	}
	return answer.JSONResponse(res.StatusCode, res.Header, envelope)
}

// messagesError returns an error body of the Messages dialect unchanged. ok reports whether it is one.
func messagesError(text []byte) ([]byte, bool) {
	var e struct {
		Type  string
		Error answer.Fault
	}
	ok := json.Unmarshal(text, &e) == nil && e.Type == "error" && e.Error.Type != ""
	return text, ok
}
