// Package upstream sends Messages requests to where models are.
//
//	Set        which upstream has a model: the longest prefix of its name wins
//	send       one HTTP request: connections are reused, nothing is sent twice, silence has a limit
//	messages   an upstream that speaks the Messages dialect gets the request as it came
//	openai     one that speaks chat completions gets it translated, and its answer is translated back
//
// Whatever the upstream speaks, a Response is in the Messages dialect. An upstream that refuses a request has given
// an answer, which is passed on with its status; an error is only what keeps an answer from coming.
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

// The dialects of upstreams.
const (
	KindMessages = "messages"
	KindOpenAI   = "openai"
)

// The paths of requests.
const (
	PathMessages    = "/v1/messages"
	PathCountTokens = "/v1/messages/count_tokens"
)

// A Config is one upstream.
type Config struct {
	Name string // for messages and logs, behind the word upstream; "" is the host of URL
	URL  string // its base: paths are added to it
	Kind string // "" is KindMessages
	// of the models that it has; none, or "", is all. One that ends in / is cut off before the upstream sees the
	// model
	Prefixes []string

	Key string                // "" passes the caller's on
	Own func(key string) bool // whether a key is one of berth's, which never leaves; nil: those that begin with berth_

	// until the head of an answer comes; 0 is 10 min, in which the slowest model has an answer that is no stream
	Timeout     time.Duration
	IdleTimeout time.Duration // between bytes of an answer; 0 is 5 min

	Proxy func(*http.Request) (*url.URL, error) // on the way there; nil: none
}

const (
	defaultTimeout     = 10 * time.Minute
	defaultIdleTimeout = 5 * time.Minute
)

// A Request is one of Messages. Do takes from Header what is not the upstream's business.
type Request struct {
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
}

// A Set knows all upstreams. It is safe for concurrent use.
type Set struct {
	list      []*Upstream
	transport *http.Transport
}

// An Upstream answers for some models.
type Upstream struct {
	cfg       Config
	base      *url.URL
	transport *http.Transport
	log       *slog.Logger
}

// Open checks the upstreams. It connects to none. Two that have the same prefix are refused.
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

// basePath is the path that those of requests are added to. People write /v1 or leave it out as they have seen it
// elsewhere: requests of Messages have it, those of chat completions have not.
func basePath(kind, path string) string {
	path = strings.TrimRight(path, "/")
	if kind == KindMessages {
		return strings.TrimSuffix(path, "/v1")
	}
	return cmp.Or(path, "/v1")
}

// newTransport is for all upstreams.
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

// Close ends the connections that wait for requests to come.
func (s *Set) Close() error {
	s.transport.CloseIdleConnections()
	for _, u := range s.list {
		u.transport.CloseIdleConnections()
	}
	return nil
}

// For is the upstream that has a model.
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

// modelsOf says which models a prefix stands for.
func modelsOf(prefix string) string { return prefix + "*" }

// short bounds what a message repeats.
func short(text string) string {
	if len(text) > 200 {
		return strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}

// Do sends a request and gives its answer, whose body the caller closes. It is in the Messages dialect: JSON, or
// events where the request asks for a stream. An answer with a status from 400 on has the error envelope. Errors are
// a *proto.Error: Unavailable, TimedOut or Canceled.
func (u *Upstream) Do(ctx context.Context, r Request) (*http.Response, error) {
	if u.cfg.Kind == KindOpenAI {
		return u.doChat(ctx, r)
	}
	return u.doMessages(ctx, r)
}

// doMessages passes a request on.
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
