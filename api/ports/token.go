package ports

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/proto"
)

// tokenName is the query parameter with the token of a signed URL.
const tokenName = "berth_token"

// Names of the cookie with a token. Browsers take a cookie with the second one from its own host alone, and over TLS
// alone.
const (
	cookieName       = "berth-port"
	secureCookieName = "__Host-berth-port"
)

func isTokenCookie(name string) bool { return name == cookieName || name == secureCookieName }

// cookie returns the cookie of a visitor. Lax rather than Strict: a link in a chat leads to a page that works.
func (e *Edge) cookie(v *visitor) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: v.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: max(1, int(time.Until(v.expires).Seconds()))}
	if e.cfg.Domain.Scheme == "https" {
		c.Name, c.Secure = secureCookieName, true
	}
	return c
}

// cookieCounts refuses a request with a cookie that a page of another container or of a foreign site has a browser
// send: browsers add cookies to all requests to names of the same site. A link that is followed is no such request,
// and pages of the same container may use each other's ports.
func (e *Edge) cookieCounts(r *http.Request, container string) error {
	ours := func(origin string) bool { return e.cfg.Domain.SameContainer(origin, r.Host, container) }
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "same-origin" {
		return nil // the browser says so, no page can
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		for _, origin := range origins {
			if !ours(origin) {
				return foreign("Origin", origin)
			}
		}
		return nil
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	followed := read && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	if site == "" || site == "none" || followed || ours(r.Header.Get("Referer")) {
		return nil
	}
	return foreign("Sec-Fetch-Site", site)
}

func foreign(header, value string) error {
	return proto.Errorf(proto.PermissionDenied, "", header, "a page of another site or of another container "+
		"(%s: %.80q) may not use the cookie of this port; send an API key", header, value)
}

// cutToken removes the token from a query, and leaves all else as it is.
func cutToken(query string) (rest, token string) {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(name); err == nil && name == tokenName {
			token = value
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&"), token
}

// hideToken removes tokens from the cookies and the referrer of a request.
func hideToken(h http.Header) {
	hideCookies(h, isTokenCookie)
	if base, query, ok := strings.Cut(h.Get("Referer"), "?"); ok {
		if query, _ = cutToken(query); query != "" {
			base += "?" + query
		}
		h.Set("Referer", base)
	}
}

// hideCookies removes the cookies with such a name from a request.
func hideCookies(h http.Header, ours func(name string) bool) {
	var kept []string
	for _, line := range h.Values("Cookie") {
		for part := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(part), "=")
			if part = strings.TrimSpace(part); part != "" && !ours(strings.TrimSpace(name)) {
				kept = append(kept, part)
			}
		}
	}
	if len(kept) > 0 {
		kept = []string{strings.Join(kept, "; ")}
	}
	replace(h, "Cookie", kept)
}
