package api

import (
	"net/http"
	"strings"
)

// exposedHeaders are the headers of answers that a page of an allowed origin may read. The star stands for all, as
// those of an upstream, since pages send no cookies here. The names are for browsers that do not know it.
const exposedHeaders = "*, Request-Id, Retry-After, X-Should-Retry, Content-Disposition, Content-Range, Location, " +
	"Mcp-Session-Id"

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
	if x.r.Header.Get("Access-Control-Request-Private-Network") != "" { // the daemon's address is not public
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	x.WriteHeader(http.StatusNoContent)
	return true
}
