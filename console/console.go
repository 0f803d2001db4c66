package console

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"berth/api"
	"berth/api/strictjson"
	"berth/proto"
)

// Logins make links and logins. Package logins has them.
type Logins interface {
	Link(c proto.Caller) (secret string, until time.Time)
	Redeem(secret string) (cookie string, c proto.Caller, until time.Time, err error)
	Authenticate(secret string) (proto.Caller, context.Context, error)
	End(secret string) error
}

// A Config is what the edge serves. Logins must be set.
type Config struct {
	Logins Logins
	Audit  func(proto.AuditEntry) // nil: nothing is audited
}

// Path is where the page is.
const Path = "/console"

// maxBody bounds the body of a login, in bytes.
const maxBody = 4 << 10

type edge struct {
	Config
	assets        *assets
	page, preview []byte
	policy        string // of the page
}

// New makes the edge.
func New(cfg Config) (api.Edge, error) {
	files, err := readAssets()
	if err != nil {
		return api.Edge{}, err
	}
	e := &edge{Config: cfg, assets: files}
	if err := e.renderPages(); err != nil {
		return api.Edge{}, err
	}
	return api.Edge{Name: "console", Dialect: api.Plain, Browser: true, Prefixes: []string{Path, "/v1/console"},
		Routes: []api.Route{
			{Method: "GET", Pattern: Path, Where: api.None, Public: true, Handle: e.servePage},
			{Method: "GET", Pattern: Path + "/preview", Where: api.None, Public: true, Handle: e.servePreview},
			{Method: "GET", Pattern: Path + "/{version}/{file...}", Where: api.None, Public: true,
				Handle: e.serveAsset},
			{Method: "POST", Pattern: "/v1/console/links", Where: api.None, Handle: e.makeLink, Act: "console.link",
				MaxBodyBytes: maxBody},
			{Method: "POST", Pattern: "/v1/console/login", Where: api.None, Public: true, Handle: e.login,
				MaxBodyBytes: maxBody, Media: []string{"application/json"}},
			{Method: "GET", Pattern: "/v1/console/login", Where: api.None, Public: true, Handle: e.showLogin},
			{Method: "DELETE", Pattern: "/v1/console/login", Where: api.None, Handle: e.logout, Act: "console.logout"},
		}}, nil
}

// makeLink makes a link for the key of the request. A browser makes none: its login would never end.
func (e *edge) makeLink(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	if err := strictjson.DecodeOptional(r, &struct{}{}); err != nil {
		return err
	}
	if c.Browser {
		return proto.Errorf(proto.PermissionDenied, "", "", "A link needs an API key; run `berth console`.")
	}
	secret, until := e.Logins.Link(c)
	w.Header().Set("Cache-Control", "no-store")
	return api.JSON(w, http.StatusCreated, proto.ConsoleLink{Path: Path + "#login=" + secret,
		ExpiresAt: proto.At(until)})
}

// login gives a browser the cookie for the secret of a link. A foreign page must not log a browser in either: its user
// would then work with the attacker's key.
func (e *edge) login(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	if err := api.CheckSameOrigin(r); err != nil {
		return err
	}
	var req proto.ConsoleLogin
	if err := strictjson.Decode(r, &req); err != nil {
		return err
	}
	secret, c, until, err := e.Logins.Redeem(req.Secret)
	e.audit(r, c, err)
	if err != nil {
		return err
	}
	cookie := api.NewLoginCookie(r)
	cookie.Value, cookie.MaxAge = secret, max(1, int(time.Until(until).Seconds()))
	http.SetCookie(w, cookie)
	w.Header().Set("Cache-Control", "no-store")
	return api.JSON(w, http.StatusOK, proto.ConsoleSession{KeyID: c.KeyID, Owner: c.Owner, Admin: c.Admin,
		ExpiresAt: proto.At(until)})
}

// showLogin tells a page which key its browser is logged in with. The fields are empty if it is not logged in: the page
// asks this first, and an error would fill the browser's log.
func (e *edge) showLogin(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	if err := api.CheckSameOrigin(r); err != nil {
		return err
	}
	var told proto.ConsoleSession
	if c, life, err := e.Logins.Authenticate(api.LoginSecret(r)); err == nil {
		until, _ := life.Deadline()
		told = proto.ConsoleSession{KeyID: c.KeyID, Owner: c.Owner, Admin: c.Admin, ExpiresAt: proto.At(until)}
	} else if proto.CodeOf(err) != proto.Unauthenticated {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return api.JSON(w, http.StatusOK, told)
}

// audit writes an entry for a login. The server writes none for a request without a key.
func (e *edge) audit(r *http.Request, c proto.Caller, err error) {
	if e.Audit == nil {
		return
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	entry := proto.AuditEntry{Act: "console.login", Outcome: proto.AuditOK, Actor: c.KeyID, Owner: c.Owner,
		RequestID: api.RequestID(r.Context()), Note: "from " + host}
	if err != nil {
		entry.Outcome, entry.Actor = string(proto.CodeOf(err)), proto.ActorUnknown
	}
	e.Audit(entry)
}

// logout ends the login of the browser, in all its windows.
func (e *edge) logout(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	if !c.Browser {
		return proto.Invalid("", "An API key is no login of a browser; there is nothing to end.")
	}
	secret := api.LoginSecret(r)
	cookie := api.NewLoginCookie(r)
	cookie.MaxAge = -1
	http.SetCookie(w, cookie)
	if err := api.JSON(w, http.StatusOK, map[string]bool{"ended": true}); err != nil {
		return err
	}
	return e.Logins.End(secret) // last: it ends this request, too
}

// serveAsset serves a file. Its path has the version of all files, so browsers may keep it for good.
func (e *edge) serveAsset(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	a, ok := e.assets.files[r.PathValue("file")]
	if !ok || r.PathValue("version") != e.assets.version {
		return proto.Errorf(proto.NotFound, "", "", "This file of the console does not exist, or is of another "+
			"version; load the page again.")
	}
	h, body := w.Header(), a.plain
	h.Set("Content-Type", a.media)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body = a.zipped()
		h.Set("Content-Encoding", "gzip")
	}
	return write(w, body)
}

func write(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(body)
	return err
}
