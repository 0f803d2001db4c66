// Package ports is the edge to what listens in containers: a reverse proxy for HTTP, WebSocket and server-sent events.
//
// A port is below the path /v1/containers/{id}/ports/{port}/, and has a host name of its own if the daemon has a
// domain (package address). Requests need an API key or, to the host name, a signed URL (package signed); a port that
// its owner made public takes requests to its host name without either (package public). The package decides which
// requests are for a port, who may send them, and what must not cross between a client and the
// application: berth's own credentials, and what would touch other applications. session/inbound opens the connections
// and bounds them.
//
// Below the path, all applications share one origin, that of the API. So browsers get the answers there with a sandbox
// of their own: a page can reach neither the API nor another application. Below the domain, each port is an origin.
package ports

import (
	"cmp"
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"berth/api"
	"berth/api/ports/address"
	"berth/api/ports/public"
	"berth/api/ports/signed"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
)

// A Config is what the edge serves. Sessions and Ports must be set.
type Config struct {
	Sessions *session.Sessions
	Ports    *inbound.Ports
	Public   *public.Ports          // which let strangers in; nil: with no strangers yet
	Max      proto.PortAccess       // the widest access to ports; "" is proto.PortsSigned
	Knows    func(key string) bool  // reports whether a text is an API key of this daemon, or looks like one
	Clean    func(http.Header)      // removes the credentials of other edges from a request; nil: there are none
	Audit    func(proto.AuditEntry) // nil: nothing is audited

	Domain address.Domain                     // the zero Domain: ports have no host names
	Tokens *signed.Tokens                     // of signed URLs; must be set with a domain
	Life   func(keyID string) context.Context // ends when an API key is no longer valid; must be set with a domain

	Log *slog.Logger // nil: slog.Default
}

// An Edge proxies requests to the ports of containers.
type Edge struct {
	cfg       Config
	transport *http.Transport
	buffers   sync.Pool
	seen      seen
	errors    *log.Logger // of answers that break off
}

// New returns an edge.
func New(cfg Config) *Edge {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Public == nil {
		cfg.Public = public.New()
	}
	e := &Edge{cfg: cfg, buffers: sync.Pool{New: func() any {
		b := make([]byte, bufferBytes)
		return &b
	}}}
	e.transport = newTransport(e.dial)
	e.errors = slog.NewLogLogger(e.cfg.Log.Handler(), slog.LevelDebug)
	return e
}

// A target is the port that a request is for.
type target struct {
	container string // ID or name
	port      string // as the client wrote it
	prefix    string // of the path, without the slash at its end
	path      string // what the application gets, escaped
	query     string // what the application gets, as the client wrote it
}

// containersPath is where the path of a port begins.
const containersPath = "/v1/containers/"

// Route is the name of the requests to ports in the log and the metrics.
const Route = "/v1/containers/{id}/ports/{port}/{path...}"

// Match is an api.Raw.
func (e *Edge) Match(r *http.Request) (api.RawRequest, bool) {
	if at, below := e.cfg.Domain.Find(r.Host); below {
		return e.matchHost(r, at), true
	}
	t, ok := inPath(r)
	if !ok {
		return api.RawRequest{}, false
	}
	return api.RawRequest{
		Route: Route, Container: t.container,
		Handle: func(w http.ResponseWriter, r *http.Request, c api.Caller) error { return e.serve(w, r, c, t) },
	}, true
}

// inPath returns the port that the path of a request names.
func inPath(r *http.Request) (t target, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), containersPath)
	parts := strings.SplitN(rest, "/", 4)
	if !ok || len(parts) != 4 || parts[1] != "ports" || r.Method == http.MethodConnect {
		return t, false
	}
	method := r.Method
	if method == http.MethodOptions { // a browser's question before a page's request goes where that one will
		method = cmp.Or(r.Header.Get("Access-Control-Request-Method"), method)
	}
	if parts[3] == "url" && method == http.MethodPost {
		return t, false // the route of the API that signs URLs
	}
	return target{container: parts[0], port: parts[2], path: "/" + parts[3], query: r.URL.RawQuery,
		prefix: containersPath + strings.Join(parts[:3], "/")}, true
}

// serve passes a request of a caller on to its application.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request, c api.Caller, t target) error {
	port, err := inbound.ParsePort(t.port)
	if err != nil {
		return err
	}
	s, err := e.cfg.Sessions.Get(c.Owner, t.container)
	if err != nil {
		return err
	}
	return e.pass(w, r, c.KeyID, s, port, t)
}

// pass passes a request on. actor is who sends it, for the audit log.
func (e *Edge) pass(w http.ResponseWriter, r *http.Request, actor string, s *session.Session, port uint16,
	t target) error {
	path, err := url.PathUnescape(t.path)
	if err != nil {
		return proto.Invalid("path", "The path has a %% that begins no escape; write it as %%25.")
	}
	e.audit(r, actor, s, port)
	p := relay{e: e, t: t, s: s, port: port, in: r, path: path}
	return p.run(w)
}

// audit writes an entry for the first use of a port by an actor from an address, in each generation of the container.
func (e *Edge) audit(r *http.Request, actor string, s *session.Session, port uint16) {
	generation := s.Info().Generation
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if e.cfg.Audit == nil || !e.seen.first(use{s.ID(), generation, port, actor, host}) {
		return
	}
	e.cfg.Audit(proto.AuditEntry{Act: "port.use", Outcome: proto.AuditOK, Actor: actor, Owner: s.Owner(),
		ContainerID: s.ID(), Generation: generation, RequestID: api.RequestID(r.Context()),
		Item: strconv.Itoa(int(port)), Note: "from " + host})
}

// hostOf is the host of requests in the transport. It differs for each port, so that no connection serves another one.
func hostOf(s *session.Session, port uint16) string {
	return net.JoinHostPort(s.ID(), strconv.Itoa(int(port)))
}

// dial opens a connection for the transport. The owner was checked before, and is part of no address: IDs are never
// used again.
func (e *Edge) dial(ctx context.Context, _, address string) (net.Conn, error) {
	id, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := inbound.ParsePort(text)
	if err != nil {
		return nil, err
	}
	s := e.cfg.Sessions.Any(id)
	if s == nil {
		return nil, proto.Errorf(proto.NotFound, "", id, "container %s does not exist", id)
	}
	return e.cfg.Ports.Dial(ctx, s, port)
}

// A use is what one audit entry is about.
type use struct {
	container  string
	generation int64
	port       uint16
	actor      string
	client     string // address
}

// maxSeen bounds the uses that are remembered. After more of them, a use may be audited again.
const maxSeen = 10_000

// seen remembers uses.
type seen struct {
	mu  sync.Mutex
	all map[use]struct{}
}

// first remembers a use and reports whether it is the first of its kind.
func (s *seen) first(u use) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[u]; ok {
		return false
	}
	if s.all == nil || len(s.all) >= maxSeen {
		s.all = map[use]struct{}{}
	}
	s.all[u] = struct{}{}
	return true
}
