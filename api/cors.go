package api

import (
	"net/http"
	"strings"
)

// exposedHeaders are the headers of answers that a page of an allowed origin may read, besides those that every page
// may.
const exposedHeaders = "Request-Id, Retry-After, X-Should-Retry, Content-Disposition, Content-Range, Location"

// shareAnswer lets a page of an origin in Config.Origins read the answer. It reports whether the request is the
// browser's question before such a page's request (CORS preflight), which carries no API key, and answers it.
func (s *Server) shareAnswer(x *exchange) (answered bool) {
	origin := x.r.Header.Get("Origin")
	if origin == "" || !s.cfg.Origins.lists(origin) {
		return false
	}
	h := x.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", exposedHeaders)
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
	h.Set("Access-Control-Max-Age", "600")
	x.WriteHeader(http.StatusNoContent)
	return true
}
