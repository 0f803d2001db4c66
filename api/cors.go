package api

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// shareAnswer lets a page of an origin in Config.Origins read the answer. It reports whether the request is the
// browser's question before such a page's request (CORS preflight), which carries no API key, and answers it.
func (s *Server) shareAnswer(x *exchange) (answered bool) {
	if len(s.cfg.Origins) == 0 {
		return false
	}
	h := x.Header()
	h.Add("Vary", "Origin") // a cache must not give a page an answer without the headers below
	origin := x.r.Header.Values("Origin")
	if len(origin) != 1 || !s.cfg.Origins.lists(origin[0]) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin[0])
	// The API takes no cookies of its own. A proxy in front may, and its pages send them.
	h.Set("Access-Control-Allow-Credentials", "true")
	x.shared = true
	if x.r.Method != http.MethodOptions || x.r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	allowed, _ := x.table.allowed(x.r)
	if len(allowed) == 0 {
		return false
	}
	h.Set("Access-Control-Allow-Methods", strings.Join(allowed, ", "))
	if names := x.r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	if x.r.Header.Get("Access-Control-Request-Private-Network") != "" { // the daemon's address is not public
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	x.WriteHeader(http.StatusNoContent)
	return true
}

// exposeHeaders lets the page that the answer is for read all its headers, as those of an upstream. It names each,
// since a star means nothing to a request with credentials.
func (x *exchange) exposeHeaders() {
	if h := x.Header(); x.shared {
		h.Set("Access-Control-Expose-Headers", strings.Join(slices.Sorted(maps.Keys(h)), ", "))
	}
}
