package api

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// The console is a web page of this daemon. Its requests have a cookie in place of an API key. Browsers add cookies to
// requests of foreign pages, too, so a cookie counts only in requests that the browser says are of a page of this
// daemon (CheckSameOrigin), and only for edges with Edge.Browser. Applications in containers never get to see it.

// Logins know the browsers that are logged in. Package logins has them.
type Logins interface {
	// Authenticate returns the caller that a login acts for, and a context that ends with the login.
	Authenticate(secret string) (Caller, context.Context, error)
}

// Names of the console's cookie; the port of the daemon follows, since browsers keep one set of cookies for all ports
// of a host. Browsers take a cookie with the second one from its own host alone, and over TLS alone.
const (
	cookieName       = "berth-console"
	secureCookieName = "__Host-berth-console"
)

// IsLoginCookie reports whether the console's cookie, of this or another daemon, may have that name.
func IsLoginCookie(name string) bool {
	return strings.HasPrefix(name, cookieName) || strings.HasPrefix(name, secureCookieName)
}

// NewLoginCookie returns the console's cookie for the browser that sends r, without a value.
func NewLoginCookie(r *http.Request) *http.Cookie {
	c := &http.Cookie{Name: nameAt(cookieName, r), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
	// Behind a proxy with TLS, the origin alone says that the browser speaks TLS.
	if r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://") {
		c.Name, c.Secure = nameAt(secureCookieName, r), true
	}
	return c
}

// nameAt returns the name of the cookie of the daemon that r was sent to.
func nameAt(name string, r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		return name + "-" + port
	}
	return name
}

// LoginSecret returns the value of the console's cookie, or "". Over TLS, only the cookie counts that no other host can
// have set.
func LoginSecret(r *http.Request) string {
	names := []string{nameAt(secureCookieName, r), nameAt(cookieName, r)}
	if r.TLS != nil {
		names = names[:1]
	}
	for _, name := range names {
		if c, err := r.Cookie(name); err == nil {
			return c.Value
		}
	}
	return ""
}

// authenticateBrowser returns the caller of a request with the console's cookie, and a context that ends with its
// login. It refuses a foreign page before it looks at the login, so that such a page learns nothing.
func (s *Server) authenticateBrowser(r *http.Request) (Caller, context.Context, error) {
	secret := LoginSecret(r)
	if secret == "" {
		return Caller{}, nil, errNoKey
	}
	if err := CheckSameOrigin(r); err != nil {
		return Caller{}, nil, err
	}
	c, life, err := s.cfg.Logins.Authenticate(secret)
	c.Browser = true
	return c, life, err
}

// CheckSameOrigin refuses a request that a browser does not send for a page of this daemon. Pages can forge neither
// header. Browsers send Sec-Fetch-Site to loopback and over TLS, and Origin with every websocket and every method that
// changes something.
func CheckSameOrigin(r *http.Request) error {
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "same-origin" {
		return nil
	}
	if site != "" {
		return foreignPage("Sec-Fetch-Site", site)
	}
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return foreignPage("Origin", origin)
		}
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if len(origins) == 0 && (!reads || websocket.IsWebSocketUpgrade(r)) {
		return foreignPage("Origin", "")
	}
	return nil
}

func foreignPage(header, value string) error {
	return proto.Errorf(proto.PermissionDenied, "", header, "only a page of this daemon may use the console's cookie "+
		"(%s: %.80q); send an API key", header, value)
}
