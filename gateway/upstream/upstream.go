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
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"berth/proto"
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
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
}

// A Set holds all upstreams. It is safe for concurrent use.
type Set struct {
	list      []*Upstream
	transport *http.Transport
}

// An Upstream serves some of the models.
type Upstream struct {
	cfg       Config
	base      *url.URL
	transport *http.Transport
	log       *slog.Logger
}

// Open checks the configuration of the upstreams and connects to none. It refuses two upstreams with the same prefix.
func Open(list []Config, log *slog.Logger) (*Set, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Set{transport: newTransport()}
	seen := map[string]bool{}
	for _, cfg := range list {
		u, err := newUpstream(cfg, s.transport, log)
		if err != nil {
			return nil, err
		}
		for _, p := range u.cfg.Prefixes {
			if seen[p] {
				return nil, invalid("two upstreams have the models %s; give one of them another prefix", modelsOf(p))
			}
			seen[p] = true
		}
		s.list = append(s.list, u)
	}
	return s, nil
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
	return &Upstream{cfg: cfg, base: base, transport: transport, log: log}, nil
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

// newTransport returns the HTTP transport of all upstreams.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
	}
}

// Close closes idle connections.
func (s *Set) Close() error {
	s.transport.CloseIdleConnections()
	for _, u := range s.list {
		u.transport.CloseIdleConnections()
	}
	return nil
}

// For returns the upstream of a model.
func (s *Set) For(model string) (*Upstream, error) {
	var best *Upstream
	longest := -1
	for _, u := range s.list {
		for _, p := range u.cfg.Prefixes {
			if strings.HasPrefix(model, p) && len(p) > longest {
				best, longest = u, len(p)
			}
		}
	}
	switch {
	case best != nil:
		return best, nil
	case len(s.list) == 0:
		return nil, proto.Errorf(proto.NotFound, "", "model", "No upstream is configured, so no model can be asked; "+
			"the operator of the daemon gives one with --upstream.")
	}
	return nil, proto.Errorf(proto.NotFound, "", "model", "No upstream has the model %q; there are %s.", short(model),
		strings.Join(s.models(), ", "))
}

func (s *Set) models() (list []string) {
	for _, u := range s.list {
		for _, p := range u.cfg.Prefixes {
			list = append(list, modelsOf(p))
		}
	}
	return slices.Sorted(slices.Values(list))
}

// modelsOf returns the pattern of the models that a prefix selects.
func modelsOf(prefix string) string { return prefix + "*" }

// short shortens text for an error message.
func short(text string) string {
	if len(text) > 200 {
		return strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}

// Do sends a request and returns its answer. The caller closes the body. The answer is in the Messages dialect: JSON,
// or events if the request asks for a stream. An answer with a status of 400 or more has the error envelope. An error
// is a *proto.Error with the code Unavailable, TimedOut or Canceled.
func (u *Upstream) Do(ctx context.Context, r Request) (*http.Response, error) {
	if u.cfg.Kind == KindOpenAI {
		return u.doChat(ctx, r)
	}
	return u.doMessages(ctx, r)
}

// doMessages sends a request to a Messages upstream unchanged.
func (u *Upstream) doMessages(ctx context.Context, r Request) (*http.Response, error) {
	res, err := u.send(ctx, r.Path, r.Query, u.header(r.Header), u.cutModel(r.Body))
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusBadRequest {
		return u.failed(res, messagesError), nil
	}
	return res, nil
}
