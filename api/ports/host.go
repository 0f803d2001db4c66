package ports

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"berth/api"
	"berth/api/ports/address"
	"berth/api/ports/public"
	"berth/api/ports/signed"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
)

// HostRoute is the name of the requests to host names of ports in the log and the metrics.
const HostRoute = "port host"

// matchHost returns what serves a request to a host name below the domain.
func (e *Edge) matchHost(r *http.Request, at address.Place) api.RawRequest {
	if at.Container == "" || r.URL.Path == "*" || r.Method == http.MethodConnect {
		return e.refuse(proto.Invalid("host", "the host %.100q is no port of a container; it is written as "+
			"<port>-<id>.<domain>, as `berth ports` shows", api.Shortened(r.Host)))
	}
	t := target{container: at.Container, port: at.Port, path: r.URL.EscapedPath()}
	if t.path == "" {
		t.path = "/"
	}
	var token string
	t.query, token = cutToken(r.URL.RawQuery)
	v, err := e.admitVisitor(r, t, token)
	switch {
	case v != nil && err == nil:
		return api.RawRequest{Route: HostRoute, Container: t.container, Keyless: true, Dialect: &browsers,
			Handle: func(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
				return e.serveVisitor(w, r, t, v)
			}}
	case !e.hasKey(r) && e.isPublic(t):
		return api.RawRequest{Route: HostRoute, Container: t.container, Keyless: true, Dialect: &browsers,
			Handle: func(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
				return e.serveStranger(w, r, t)
			}}
	case err != nil && !e.hasKey(r):
		return e.refuse(err)
	}
	return api.RawRequest{Route: HostRoute, Container: t.container, Dialect: &browsers,
		Handle: func(w http.ResponseWriter, r *http.Request, c api.Caller) error { return e.serve(w, r, c, t) }}
}

// refuse answers every request with an error.
func (e *Edge) refuse(err error) api.RawRequest {
	return api.RawRequest{Route: HostRoute, Keyless: true, Dialect: &browsers,
		Handle: func(http.ResponseWriter, *http.Request, api.Caller) error { return err }}
}

// hasKey reports whether a request has an API key, or what looks like one. Applications have such headers, too.
func (e *Edge) hasKey(r *http.Request) bool {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return e.isKey(r.Header.Get("X-Api-Key")) || strings.EqualFold(scheme, "Bearer") && e.isKey(key)
}

// isKey reports whether a text is an API key or looks like one.
func (e *Edge) isKey(text string) bool {
	text = strings.TrimSpace(text)
	return text != "" && (e.cfg.Knows == nil || e.cfg.Knows(text))
}

// isPublic reports whether a port takes requests of strangers.
func (e *Edge) isPublic(t target) bool {
	port, err := inbound.ParsePort(t.port)
	s := e.cfg.Sessions.Any(t.container)
	return err == nil && s != nil && s.Info().PublicPorts.Has(port)
}

// Pass serves a request to a port of a container that another edge has found, as one to the port's host name. That edge
// has admitted the actor; with "" the request is a stranger's, and the port must be public.
func (e *Edge) Pass(w http.ResponseWriter, r *http.Request, s *session.Session, port uint16, actor string) error {
	t := target{container: s.ID(), port: strconv.Itoa(int(port)), path: cmp.Or(r.URL.EscapedPath(), "/"),
		query: r.URL.RawQuery}
	if actor == "" {
		return e.passStranger(w, r, s, port, t)
	}
	return e.pass(w, r, actor, s, port, t)
}

// HasCredential reports whether a request has an API key, a signed URL or the cookie of one. It need not be valid.
func (e *Edge) HasCredential(r *http.Request) bool {
	_, token := cutToken(r.URL.RawQuery)
	return token != "" || e.hasKey(r) || slices.ContainsFunc(r.Cookies(), func(c *http.Cookie) bool {
		return isTokenCookie(c.Name)
	})
}

// serveStranger serves a request without a credential to a public port.
func (e *Edge) serveStranger(w http.ResponseWriter, r *http.Request, t target) error {
	port, err := inbound.ParsePort(t.port)
	if err != nil {
		return err
	}
	s := e.cfg.Sessions.Any(t.container)
	if s == nil {
		return proto.Errorf(proto.NotFound, "", t.container, "container %s does not exist", t.container)
	}
	return e.passStranger(w, r, s, port, t)
}

// passStranger passes a stranger's request on, until its port is no longer public.
func (e *Edge) passStranger(w http.ResponseWriter, r *http.Request, s *session.Session, port uint16, t target) error {
	ctx, leave, ok, err := e.cfg.Public.Enter(r.Context(), s, port)
	switch {
	case err != nil:
		return err
	case !ok:
		return public.ErrWithdrawn
	}
	defer leave()
	err = e.pass(w, r.WithContext(ctx), proto.ActorPublic, s, port, t)
	if err != nil && context.Cause(ctx) == error(public.ErrWithdrawn) {
		return public.ErrWithdrawn
	}
	return err
}

// A visitor is who sends a request without an API key.
type visitor struct {
	keyID   string    // the API key on whose behalf
	expires time.Time // of the token
	token   string    // in the URL; "": in a cookie
}

// admitVisitor returns who sends a request with a token for this port, in its URL or in a cookie. For a request
// without a token both results are nil.
func (e *Edge) admitVisitor(r *http.Request, t target, token string) (*visitor, error) {
	port, err := inbound.ParsePort(t.port)
	if err != nil {
		return nil, err
	}
	v, err := e.check(t.container, port, token)
	if v != nil {
		v.token = token
		return v, nil
	}
	for _, c := range r.Cookies() {
		if !isTokenCookie(c.Name) {
			continue
		}
		v, cerr := e.check(t.container, port, c.Value)
		if v != nil {
			return v, e.cookieCounts(r, t.container)
		}
		if err == nil {
			err = cerr
		}
	}
	return nil, err
}

// check returns who a token is of.
func (e *Edge) check(container string, port uint16, token string) (*visitor, error) {
	if token == "" {
		return nil, nil
	}
	if err := e.allowSigned(); err != nil {
		return nil, err
	}
	g, err := e.cfg.Tokens.Check(token, container, port, time.Now())
	if err != nil {
		return nil, err
	}
	if e.cfg.Life(g.KeyID).Err() != nil {
		return nil, errKeyEnded
	}
	return &visitor{keyID: g.KeyID, expires: g.Expires}, nil
}

var errKeyEnded = proto.Errorf(proto.Unauthenticated, "", "", "The API key that made the signed URL was revoked or "+
	"has expired.")

// serveVisitor serves a request with a token. One with the token in its URL is sent to the URL without it, where a
// cookie has the token: the pages' own requests have it, too, and neither the application nor the browser's history
// get to know it. A websocket and a form with the token in its URL are served at once.
func (e *Edge) serveVisitor(w http.ResponseWriter, r *http.Request, t target, v *visitor) error {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if v.token != "" && read && !websocket.IsWebSocketUpgrade(r) {
		e.welcome(w, r, t, v)
		return nil
	}
	s := e.cfg.Sessions.Any(t.container)
	if s == nil {
		return proto.Errorf(proto.NotFound, "", t.container, "container %s does not exist", t.container)
	}
	c := api.Caller{Owner: s.Owner(), KeyID: v.keyID}
	timed, stop := context.WithDeadlineCause(proto.WithCaller(r.Context(), c), v.expires, errTimeOver)
	defer stop()
	ctx, cancel := context.WithCancelCause(timed)
	defer cancel(nil)
	defer context.AfterFunc(e.cfg.Life(v.keyID), func() { cancel(errKeyEnded) })()
	err := e.serve(w, r.WithContext(ctx), c, t)
	if cause := context.Cause(ctx); err != nil && (cause == error(errTimeOver) || cause == error(errKeyEnded)) {
		return cause
	}
	return err
}

var errTimeOver = proto.Errorf(proto.Expired, "", "token", "the signed URL has expired; ask for another one")

// welcome sets the cookie of a visitor and sends the browser to the URL without the token.
func (e *Edge) welcome(w http.ResponseWriter, r *http.Request, t target, v *visitor) {
	http.SetCookie(w, e.cookie(v))
	h := w.Header()
	at := e.cfg.Domain.Scheme + "://" + r.Host + t.path
	if t.query != "" {
		at += "?" + t.query
	}
	h.Set("Location", at)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}

// Sign makes a signed URL for a port of a container on behalf of the API key of ctx's request.
func (e *Edge) Sign(ctx context.Context, container, port string, req proto.SignPort) (made proto.PortURL, err error) {
	api.Note(ctx, port)
	number, err := inbound.ParsePort(port)
	if err != nil {
		return made, err
	}
	if req.ExpiresInSeconds < 0 || req.ExpiresInSeconds > proto.MaxPortURL {
		return made, proto.Invalid("expires_in_seconds", "expires_in_seconds is %d; use 1 to %d, or leave it out for "+
			"%d", req.ExpiresInSeconds, proto.MaxPortURL, proto.UsualPortURL)
	}
	base, err := e.URL(container, number)
	if err != nil {
		return made, err
	}
	if err := e.allowSigned(); err != nil {
		return made, err
	}
	seconds := cmp.Or(req.ExpiresInSeconds, proto.UsualPortURL)
	until := time.Now().Truncate(time.Second).Add(time.Duration(seconds) * time.Second)
	token, err := e.cfg.Tokens.Sign(container, number, signed.Grant{KeyID: proto.CallerOf(ctx).KeyID,
		Expires: until})
	if err != nil {
		return made, err
	}
	return proto.PortURL{URL: base + "/?" + tokenName + "=" + token, ExpiresAt: proto.Time{Time: until}}, nil
}

// allowSigned returns an error if the daemon takes API keys alone.
func (e *Edge) allowSigned() error {
	if !e.cfg.Max.Covers(proto.PortsSigned) {
		return proto.Errorf(proto.PermissionDenied, "", "", "this daemon opens ports with API keys alone, not with "+
			"signed URLs; its operator can allow them with --ports-max signed")
	}
	return nil
}

// Publish makes a port of a container, or public.All, public.
func (e *Edge) Publish(ctx context.Context, s *session.Session, port string) (done proto.PublishedPorts, err error) {
	api.Note(ctx, port)
	number, err := public.Parse(port)
	if err != nil {
		return done, err
	}
	at, err := e.URL(s.ID(), max(number, 1))
	if err != nil {
		return done, err
	}
	if done, err = e.cfg.Public.Publish(ctx, s, port); err == nil && number != 0 {
		done.URL = at
	}
	return done, err
}

// Withdraw makes a port of a container, or with public.All every port, private again. It needs no domain.
func (e *Edge) Withdraw(ctx context.Context, s *session.Session, port string) (proto.PublishedPorts, error) {
	api.Note(ctx, port)
	return e.cfg.Public.Withdraw(ctx, s, port)
}

// Change changes a container. Strangers' requests to ports that are no longer public end.
func (e *Edge) Change(ctx context.Context, s *session.Session, req proto.ChangeContainer) (proto.Container, error) {
	if req.PublicPorts == nil {
		return s.Change(ctx, req)
	}
	return e.cfg.Public.Change(ctx, s, req, nil)
}

// List lists the ports that programs in a container listen on, with their URLs if there is a domain.
func (e *Edge) List(ctx context.Context, s *session.Session) ([]proto.Port, error) {
	all, err := inbound.Listening(ctx, s)
	open := s.Info().PublicPorts
	for i := range all {
		all[i].URL, _ = e.URL(s.ID(), all[i].Port) // "" without a domain
		all[i].Public = open.Has(all[i].Port)
	}
	return all, err
}

// URL returns the URL of a port of a container, without a slash at its end. Without a domain there is none.
func (e *Edge) URL(container string, port uint16) (string, error) {
	if e == nil || e.cfg.Domain.Name == "" {
		return "", proto.Errorf(proto.Unsupported, "", "", "ports have no URLs of their own, since the daemon has no "+
			"domain; start it with --domain NAME, or use `berth forward`")
	}
	return e.cfg.Domain.URL(container, port), nil
}
