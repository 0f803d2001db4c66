package api

import (
	"fmt"
	"net/http"
	"path"
	"strings"

	"berth/proto"
)

// A Handler serves one route. What it returns is rendered in its edge's dialect.
type Handler func(w http.ResponseWriter, r *http.Request, c Caller) error

// A Route is one row of an edge's table.
type Route struct {
	Method  string // "GET" serves HEAD too
	Pattern string // path as http.ServeMux has it: "/v1/files/{id}"
	Handle  Handler

	Media        []string // of bodies it takes, "*/*" for any; nil: its handler looks
	MaxBodyBytes int64    // 0 is Config.MaxBodyBytes; negative is no limit, the handler has its own
	Public       bool     // needs no API key; Caller is zero

	Act     string // what the audit log calls it: "file.upload"; "" is method and pattern, and for GET not to be there
	Covered bool   // the core has it audited where it is done; here only its failures are
}

// Wildcards are the names of what a pattern leaves open. Patterns here name one part of the path by each.
func Wildcards(pattern string) (names []string) {
	for part := range strings.SplitSeq(pattern, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// An Edge is one dialect with its routes.
type Edge struct {
	Prefixes []string // of paths whose errors it renders, "/v1/files"; the longest one wins
	Routes   []Route
	Dialect  Dialect
	Check    func(r *http.Request) error // of each request to its routes, after the API key; nil is none
}

// methods are those a route can have, for the Allow header.
var methods = []string{"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"}

// mount registers an edge's routes. Conflicting patterns are an error, where the mux panics.
func (s *Server) mount(e *Edge) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("routes: %v", r)
		}
	}()
	for _, route := range e.Routes {
		s.edges[route.Method+" "+route.Pattern] = e
		if !strings.Contains(route.Pattern, "{") {
			s.literal[route.Pattern] = true
		}
		s.mux.HandleFunc(route.Method+" "+route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			x := w.(*exchange)
			x.r, x.edge = r, e
			s.end(x, s.call(x, e, route))
		})
	}
	return nil
}

// dispatch sends a request on its way. The mux answers unknown paths in plain text and redirects
// unclean ones, so it only gets to see what it knows.
func (s *Server) dispatch(x *exchange) {
	if !isClean(x.r) {
		s.end(x, noRoute(x, nil))
		return
	}
	_, pattern := s.mux.Handler(x.r)
	if hidden := strings.Contains(pattern, "{") && s.literal[x.r.URL.Path]; pattern != "" && !hidden {
		s.mux.ServeHTTP(x, x.r)
		return
	}
	var allowed []string
	allowed, x.edge = s.allowed(x.r)
	s.end(x, noRoute(x, allowed))
}

func isClean(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return p == path.Clean(p) || p == path.Clean(p)+"/"
}

// noRoute tells a wrong method from an unknown path.
func noRoute(x *exchange, allowed []string) error {
	if len(allowed) == 0 {
		return proto.Errorf(proto.NotFound, "", "", "There is no such endpoint; check the path.")
	}
	list := strings.Join(allowed, ", ")
	x.Header().Set("Allow", list)
	return statusError{http.StatusMethodNotAllowed,
		proto.Errorf(proto.InvalidArgument, "", "", "This endpoint does not take this method; it takes %s.", list)}
}

// allowed are the methods that the path of r takes, and the edge that has it. A path of its own, such as /keys/self,
// hides what /keys/{id} would take: its methods alone count.
func (s *Server) allowed(r *http.Request) (list []string, edge *Edge) {
	best := ""
	for _, method := range methods {
		_, pattern := s.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
		_, at, ok := strings.Cut(pattern, " ")
		if !ok {
			continue
		}
		if best == "" || strings.Count(at, "{") < strings.Count(best, "{") {
			best, list, edge = at, nil, s.edges[pattern]
		}
		if at == best {
			list = append(list, method)
		}
	}
	return list, edge
}

// edgeOf is the edge with the longest prefix of path, or one with the plain dialect.
func (s *Server) edgeOf(path string) *Edge {
	best, length := &Edge{Dialect: Plain}, -1
	for i := range s.cfg.Edges {
		for _, prefix := range s.cfg.Edges[i].Prefixes {
			if len(prefix) > length && hasPathPrefix(path, prefix) {
				best, length = &s.cfg.Edges[i], len(prefix)
			}
		}
	}
	return best
}

// hasPathPrefix compares whole components: "/v1/files" is a prefix of "/v1/files/x", not of "/v1/filesystem".
func hasPathPrefix(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
