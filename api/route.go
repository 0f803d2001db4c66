package api

import (
	"fmt"
	"net/http"
	"strings"

	"berth/api/openapi"
	"berth/proto"
)

// A Handler serves one route. The server renders the error that it returns in the dialect of the route's edge.
type Handler func(w http.ResponseWriter, r *http.Request, c Caller) error

// A Route is one row of an edge's table.
type Route struct {
	Method  string // "GET" also serves HEAD
	Pattern string // path pattern of http.ServeMux, such as "/v1/files/{id}"
	Where   Place  // where the ID of the request's container stands; New refuses a route that does not say
	Handle  Handler

	Media        []string // media types of bodies that it accepts, "*/*" for any; nil: the handler checks
	MaxBodyBytes int64    // 0 is Config.MaxBodyBytes; negative: the handler has its own limit
	Public       bool     // needs no API key; Caller is zero
	Probe        bool     // machines ask every few seconds; the log has successes at level debug
	// reports whether a request needs no API key; nil: each needs one
	Keyless func(*http.Request) bool

	Doc *openapi.Operation // what the OpenAPI document says of it; nil: it is not in the document

	Act     string // action name in the audit log, "file.upload"; "" is method and pattern, or none for GET
	Covered bool   // the core audits the action when it is done; the server only audits failures
}

// takesBody reports whether the handler may read a body.
func (r Route) takesBody() bool {
	switch {
	case r.Media != nil:
		return true
	case r.Doc != nil:
		return len(r.Doc.Body) > 0
	}
	return r.Method != http.MethodGet && r.Method != http.MethodDelete
}

// A Place says where the ID of a request's container stands.
type Place int

// The places.
const (
	_        Place = iota
	None           // the request concerns no container, or creates one
	InPath         // {id} after /containers/, or after /sandboxes/, where the ID is spelled for host names
	InBody         // a field of the body
	InHeader       // a header
	InHost         // the label of the host name that the edge's "*." stands for
)

// How path patterns name a container: by its ID or name, or by its ID as proto.HostID spells it.
const (
	containerPath = "/containers/{id}"
	sandboxPath   = "/sandboxes/{id}"
)

// namesContainer reports whether a path pattern names a container.
func namesContainer(pattern string) bool {
	return strings.Contains(pattern+"/", containerPath+"/") || strings.Contains(pattern+"/", sandboxPath+"/")
}

// check compares the declared place with the pattern, and with the host pattern of the route's edge.
func (r Route) check(host string) error {
	name := r.Method + " " + r.Pattern
	inPath := namesContainer(r.Pattern)
	switch {
	case r.Where == 0:
		return fmt.Errorf("route %s does not say where the ID of its container stands", name)
	case inPath != (r.Where == InPath):
		return fmt.Errorf("route %s: only a pattern with %s or %s has its container in the path", name, containerPath,
			sandboxPath)
	case r.Where == InHost && !strings.HasPrefix(host, "*."):
		return fmt.Errorf("route %s has its container in the host, but its edge has no wildcard host", name)
	}
	return nil
}

// containerInPath returns the ID of the container in the path of a request, or "". The handler finds it as {id} in any
// case. Old clients of sandboxes append a hyphen and an ID of the client.
func (r Route) containerInPath(req *http.Request) string {
	id := req.PathValue("id")
	if strings.Contains(r.Pattern, sandboxPath) {
		label, _, _ := strings.Cut(id, "-")
		if id = proto.IDOfHost(label); id != "" {
			req.SetPathValue("id", id)
		}
	}
	if r.Where == InPath && proto.ValidID(proto.ContainerPrefix, id) {
		return id
	}
	return ""
}

// Wildcards returns the names of a pattern's wildcards. Each stands for one segment of the path.
func Wildcards(pattern string) (names []string) {
	for part := range strings.SplitSeq(pattern, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(strings.TrimSuffix(name, "}"), "..."))
		}
	}
	return names
}

// An Edge is one dialect with its routes. Edges are chosen by host, then by path.
type Edge struct {
	Name string // for errors about the tables, "native"

	// Host is the host name that the edge serves, without a port: "" for any, a name, or "*." and a domain, where
	// the star stands for one label. A name is preferred to a wildcard, and a wildcard to an edge for any host. A
	// host that has edges of its own is served by those alone.
	Host string

	Prefixes []string // of paths whose errors this edge renders, "/v1/files"; the longest match is used
	Header   string   // errors of unknown paths are in this edge's dialect if the request has this header; may be empty
	Routes   []Route
	Dialect  Dialect
	Check    func(r *http.Request) error // runs for each request to its routes, after the API key; may be nil

	// Browser has requests to its routes take the console's cookie in place of an API key; see cookie.go
	Browser bool

	// Key returns the API key that clients of this dialect spell so; nil: as it is
	Key func(spelled string) string

	// KeyBelow is a path such as "/librechat" below which a key may stand before the version: a request for
	// /librechat/KEY/v1/exec is served as one for /librechat/v1/exec with that key. Nothing else of the server sees the
	// key: not the log, the audit log, traces or errors. "": keys stand in headers alone.
	KeyBelow string
}

// Documented returns what the OpenAPI document says of the routes of edges.
func Documented(edges ...Edge) (list []openapi.Entry) {
	for _, e := range edges {
		for _, r := range e.Routes {
			if r.Doc != nil {
				list = append(list, openapi.Entry{Method: r.Method, Path: r.Pattern,
					Audited: r.name() != "" && !r.Public, Keyless: r.Keyless != nil, Operation: r.Doc})
			}
		}
	}
	return list
}

// A table holds the routes of all edges that have the same host pattern.
type table struct {
	host    string // as in Edge.Host, lower case
	edges   []*Edge
	mux     *http.ServeMux
	owners  map[string]*Edge // by "METHOD pattern"
	literal map[string]bool  // paths of patterns without wildcards
}

// table returns the table of a host pattern and creates it if needed.
func (s *Server) table(host string) *table {
	host = strings.ToLower(host)
	for _, t := range s.tables {
		if t.host == host {
			return t
		}
	}
	t := &table{host: host, mux: http.NewServeMux(), owners: map[string]*Edge{}, literal: map[string]bool{}}
	// The catch-all: without it the mux would answer unknown paths and wrong methods in plain text.
	t.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = ""
		x := w.(*exchange)
		s.endRequest(x, t.refuse(x))
	})
	s.tables = append(s.tables, t)
	return t
}

// mount checks and registers an edge's routes. It returns an error for conflicting patterns, where the mux panics.
func (s *Server) mount(e *Edge) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("routes of edge %s: %v", e.Name, r)
		}
	}()
	t := s.table(e.Host)
	t.edges = append(t.edges, e)
	for _, route := range e.Routes {
		if err := route.check(e.Host); err != nil {
			return fmt.Errorf("edge %s: %w", e.Name, err)
		}
		t.owners[route.Method+" "+route.Pattern] = e
		if !strings.Contains(route.Pattern, "{") {
			t.literal[route.Pattern] = true
		}
		t.mux.HandleFunc(route.Method+" "+route.Pattern, s.serveOn(t, e, route))
	}
	return nil
}

// hides reports whether a path has a pattern of its own, such as /keys/self, and so is not served by one with
// wildcards, such as /keys/{id}.
func (t *table) hides(pattern, path string) bool {
	return strings.Contains(pattern, "{") && t.literal[path]
}

// refuse is the error for a request that no route of the table serves.
func (t *table) refuse(x *exchange) error {
	var allowed []string
	allowed, x.edge = t.allowed(x.r)
	return noRoute(x, allowed)
}

// noRoute distinguishes a wrong method from an unknown path.
func noRoute(x *exchange, allowed []string) error {
	x.unrouted = true
	if len(allowed) == 0 {
		return proto.Errorf(proto.NotFound, "", "", "There is no such endpoint; check the path.")
	}
	list := strings.Join(allowed, ", ")
	x.Header().Set("Allow", list)
	return proto.Errorf(proto.MethodNotAllowed, "", "", "This endpoint does not take this method; it takes %s.", list)
}

// methods are those that a route can have, for the Allow header.
var methods = []string{"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"}

// allowed returns the methods that the path of r accepts, and the edge that serves it. Where a path such as /keys/self
// has a pattern of its own, only the methods of that pattern count.
func (t *table) allowed(r *http.Request) (list []string, edge *Edge) {
	best := ""
	for _, method := range methods {
		_, pattern := t.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
		_, at, ok := strings.Cut(pattern, " ")
		if !ok { // the catch-all
			continue
		}
		if best == "" || strings.Count(at, "{") < strings.Count(best, "{") {
			best, list, edge = at, nil, t.owners[pattern]
		}
		if at == best {
			list = append(list, method)
		}
	}
	return list, edge
}

// edgeOf returns the edge with the longest prefix of the path, or else the one whose header the request has, or one
// with the plain dialect.
func (t *table) edgeOf(r *http.Request) *Edge {
	best, length := &Edge{Dialect: Plain}, -1
	for _, e := range t.edges {
		if length < 0 && e.Header != "" && r.Header.Get(e.Header) != "" {
			best = e
		}
		for _, prefix := range e.Prefixes {
			if len(prefix) > length && hasPathPrefix(r.URL.Path, prefix) {
				best, length = e, len(prefix)
			}
		}
	}
	return best
}

// hasPathPrefix compares whole segments: "/v1/files" is a prefix of "/v1/files/x", not of "/v1/filesystem".
func hasPathPrefix(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
