package api

import (
	"net/http"
	"net/url"
	"strings"
)

// version is the segment of a path that an API key in a path stands before. See Edge.KeyBelow.
const version = "v1"

// takePathKey moves an API key from the path of a request into its header, if an edge has KeyBelow. It returns a
// request without the key in its URL. Every first segment but the version is a key, so that one in a path that is wrong
// otherwise is hidden, too.
func (s *Server) takePathKey(r *http.Request) *http.Request {
	for _, e := range s.cfg.Edges {
		rest, ok := strings.CutPrefix(r.URL.EscapedPath(), e.KeyBelow+"/")
		if e.KeyBelow == "" || !ok {
			continue
		}
		segment, after, _ := strings.Cut(rest, "/")
		if segment == version || segment == "" {
			return r
		}
		key, err := url.PathUnescape(segment)
		if err != nil {
			key = ""
		}
		return withPathKey(r, key, e.KeyBelow+"/"+after)
	}
	return r
}

// withPathKey returns a request for another path, with that API key in place of the one that it may have as X-Api-Key.
func withPathKey(r *http.Request, key, escaped string) *http.Request {
	out, at := new(http.Request), *r.URL
	*out = *r
	out.Header = r.Header.Clone()
	out.Header.Set("X-Api-Key", key)
	path, err := url.PathUnescape(escaped)
	if err != nil {
		path = escaped
	}
	at.Path, at.RawPath = path, escaped
	out.URL, out.RequestURI = &at, at.RequestURI()
	return out
}
