package e2b

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/api"
	"berth/api/e2b/access"
	"berth/proto"
	"berth/session"
)

// Ports of a sandbox that are served here.
const (
	agentPort       = 49983
	interpreterPort = 49999
)

// Headers of requests to sandboxes.
const (
	headerID      = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerToken   = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
)

// A target is the port of a sandbox that a request is for.
type target struct {
	container string // ID; "" if the request names what cannot exist
	asked     string // the sandbox as the client named it
	port      string
}

// Match finds the requests to sandboxes. It is an api.Raw. A sandbox is named by headers, else by the host, else by the
// token of its agent, else by the signature of a URL.
func (e *Edge) Match(r *http.Request) (api.RawRequest, bool) {
	if isPreflight(r) {
		return e.raw(target{}, func(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
			answerPreflight(w, r)
			return nil
		}), true
	}
	byHost, inName := inHost(r.Host)
	if !inName {
		byHost, inName = e.inDomain(r)
	}
	id, port := r.Header.Get(headerID), r.Header.Get(headerPort)
	toProgram := id != "" && port != "" && portName(port) == "port"
	if isControl(r.URL.Path) && !inName && !toProgram { // some clients send the headers there, too
		return api.RawRequest{}, false
	}
	if id != "" || port != "" {
		return e.to(target{containerID(id), id, port}), true
	}
	if inName {
		return e.to(byHost), true
	}
	if token := r.Header.Get(headerToken); token != "" {
		if id := access.ContainerOf(token); id != "" {
			return e.to(target{id, proto.HostID(id), strconv.Itoa(agentPort)}), true
		}
	}
	if r.URL.Path == "/files" && r.URL.Query().Get("signature") != "" {
		if s := e.signedFor(r); s != nil {
			return e.to(target{s.ID(), proto.HostID(s.ID()), strconv.Itoa(agentPort)}), true
		}
	}
	return api.RawRequest{}, false
}

// inHost returns the sandbox that a host such as 49983-ID.example.org names, of any domain: only who knows its ID can
// name it. Old clients append a hyphen and an ID of the client.
func inHost(host string) (t target, ok bool) {
	label, _, _ := strings.Cut(host, ".")
	port, id, _ := strings.Cut(label, "-")
	if name := portName(port); name != "agent" && name != "interpreter" {
		return t, false
	}
	t = target{containerID(id), strings.ToLower(id), port}
	return t, t.container != ""
}

// isControl reports whether a path is one of the control plane that no sandbox has.
func isControl(path string) bool {
	return slices.ContainsFunc([]string{sandboxes, "/v2", "/v3", "/templates", "/snapshots"}, func(prefix string) bool {
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	})
}

// containerID returns the ID of the container that clients name so, or "".
func containerID(asked string) string {
	label, _, _ := strings.Cut(asked, "-")
	return proto.IDOfHost(label)
}

// signedFor returns the sandbox whose token signed the URL of a request, or nil.
func (e *Edge) signedFor(r *http.Request) *session.Session {
	u := signed(r)
	for _, info := range e.cfg.Sessions.Infos() {
		if s := e.cfg.Sessions.Any(info.ID); s != nil && u.KeyOf(s, e.cfg.Keys) != "" {
			return s
		}
	}
	return nil
}

// signed reads what the URL of a request says that it is signed for.
func signed(r *http.Request) access.Signed {
	q := r.URL.Query()
	u := access.Signed{Path: q.Get("path"), Operation: "read", User: q.Get("username"), Signature: q.Get("signature"),
		Expires: q.Get("signature_expiration")}
	if r.Method == http.MethodPost {
		u.Operation = "write"
	}
	return u
}

// to returns how a request to a sandbox is served.
func (e *Edge) to(t target) api.RawRequest {
	return e.raw(t, func(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
		allowPages(w.Header())
		return e.serveSandbox(w, r, t)
	})
}

func (e *Edge) raw(t target, h api.Handler) api.RawRequest {
	return api.RawRequest{Route: "sandbox " + portName(t.port), Container: t.container, Handle: h, Keyless: true,
		Dialect: &dataDialect}
}

// portName is the name of a port in the log and the metrics, of which there must be few.
func portName(port string) string {
	switch port {
	case strconv.Itoa(agentPort):
		return "agent"
	case strconv.Itoa(interpreterPort):
		return "interpreter"
	}
	return "port"
}

// serveSandbox serves a request to a sandbox.
func (e *Edge) serveSandbox(w http.ResponseWriter, r *http.Request, t target) error {
	if t.asked == "" || t.port == "" {
		return routeError(http.StatusBadRequest, "missing header: "+headerID+" and "+headerPort+" belong together")
	}
	port, err := strconv.ParseUint(t.port, 10, 16)
	if err != nil {
		return routeError(http.StatusBadRequest, "Invalid sandbox port")
	}
	s, err := e.awake(r.Context(), t)
	if err != nil {
		return err
	}
	ctx, leave := e.streams.join(r.Context(), s.ID())
	defer leave()
	r = r.WithContext(ctx)
	switch port {
	case agentPort:
		err = e.serveAgent(w, r, s)
	case interpreterPort:
		err = e.serveInterpreter(w, r, s)
	default:
		err = e.servePort(w, r, s, t, uint16(port))
	}
	if err != nil && context.Cause(ctx) == errGone {
		return gone(t)
	}
	return err
}

// awake returns the sandbox of a request if it runs, or if requests may wake it. One that the daemon stopped since it
// had no processes is started by its use.
func (e *Edge) awake(ctx context.Context, t target) (*session.Session, error) {
	s := e.cfg.Sessions.Any(t.container)
	if s == nil {
		return nil, gone(t)
	}
	if !e.gone(s) {
		return s, nil
	}
	info := s.Info()
	if !settingsOf(info).autoResume {
		return nil, gone(t)
	}
	if err := s.Start(ctx); err != nil {
		return nil, gone(t)
	}
	seconds := int64(usualLease)
	_, err := s.Change(ctx, proto.ChangeContainer{Lease: proto.LeaseRequest{Mode: proto.LeaseAbsolute,
		AtEnd: settingsOf(info).atEnd, EndsInSeconds: &seconds}})
	return s, err
}

// serveAgent checks the token of a request, and passes it to the agent.
func (e *Edge) serveAgent(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	if r.URL.Path == "/health" {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	keyID, err := e.admit(r, s)
	if err != nil {
		return err
	}
	ctx, cancel := e.onBehalf(r.Context(), s, keyID)
	defer cancel()
	return e.agent.Serve(w, r.WithContext(ctx), s)
}

// admit returns the API key on whose behalf a request to the agent comes: that of its token or of its signature. A
// sandbox that is not secured takes requests with neither.
func (e *Edge) admit(r *http.Request, s *session.Session) (keyID string, err error) {
	set := settingsOf(s.Info())
	if token := r.Header.Get(headerToken); token != "" {
		if keyID = access.KeyOf(s, e.cfg.Keys, token); keyID == "" && !set.open {
			return "", routeError(http.StatusUnauthorized, "the access token is not one of this sandbox")
		}
	} else if u := signed(r); r.URL.Path == "/files" && u.Signature != "" {
		if keyID = u.KeyOf(s, e.cfg.Keys); keyID == "" {
			return "", routeError(http.StatusUnauthorized, "invalid signature")
		}
		if u.Expired(time.Now()) {
			return "", routeError(http.StatusUnauthorized, "signature is already expired")
		}
	}
	switch {
	case keyID != "":
		return keyID, nil
	case !set.open:
		return "", routeError(http.StatusUnauthorized, "the access token of the sandbox is required, as "+headerToken)
	}
	return e.creator(set)
}

// creator returns the API key that created a sandbox, for a request without a token.
func (e *Edge) creator(set settings) (keyID string, err error) {
	if !set.made() || e.cfg.Keys.Life(set.keyID).Err() != nil {
		return "", routeError(http.StatusUnauthorized, "the access token of the sandbox is required, as "+headerToken)
	}
	return set.keyID, nil
}

// onBehalf returns a context of a request that ends with the API key that it comes on behalf of.
func (e *Edge) onBehalf(ctx context.Context, s *session.Session, keyID string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(withActor(ctx, s, keyID))
	stop := context.AfterFunc(e.cfg.Keys.Life(keyID), func() { cancel(errKeyEnded) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

var errKeyEnded = proto.Errorf(proto.Unauthenticated, "", "", "The API key was revoked or has expired.")

// serveInterpreter is for the code interpreter. Clients send it no token for most calls, so it takes none from those
// who created the sandbox here; a container of another edge needs one.
func (e *Edge) serveInterpreter(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	set := settingsOf(s.Info())
	if set.private && !access.Equal(r.Header.Get(headerTraffic), access.TrafficToken(s)) {
		return trafficRefused()
	}
	keyID := access.KeyOf(s, e.cfg.Keys, r.Header.Get(headerToken))
	if keyID == "" {
		var err error
		if keyID, err = e.creator(set); err != nil {
			return err
		}
	}
	ctx, cancel := e.onBehalf(r.Context(), s, keyID)
	defer cancel()
	return e.cells.Serve(w, r.WithContext(ctx), s)
}

// A routing error is one of a request that reached no sandbox.
type routingError struct {
	status int
	body   map[string]any
	error
}

// Unwrap returns the error with its code.
func (e routingError) Unwrap() error { return e.error }

// Shape returns the body of the answer.
func (e routingError) Shape(message string) any {
	e.body["message"], e.body["code"] = message, e.status
	return e.body
}

// routeError refuses a request with a status.
func routeError(status int, message string) error { return routing(status, map[string]any{}, message) }

func routing(status int, body map[string]any, message string) error {
	code := map[int]proto.Code{http.StatusUnauthorized: proto.Unauthenticated,
		http.StatusBadRequest: proto.InvalidArgument, http.StatusBadGateway: proto.NotFound,
		http.StatusForbidden: proto.PermissionDenied}[status]
	return api.WithStatus(status, routingError{status, body, proto.Errorf(code, "", "", "%s", message)})
}

// gone is the answer for a sandbox that does not run. Clients compare the message.
func gone(t target) error {
	return routing(http.StatusBadGateway, map[string]any{"sandboxId": t.asked}, "The sandbox was not found")
}

// closedPort is the answer for a port where nothing listens. Clients compare the message.
func closedPort(t target, port uint64) error {
	return routing(http.StatusBadGateway, map[string]any{"sandboxId": t.asked, "port": port},
		"The sandbox is running but port is not open")
}

// dataDialect writes the errors of requests to sandboxes, each as its service does.
var dataDialect = api.Dialect{Status: statuses, Retry: "Should-Retry", Body: func(f api.Failure) any {
	var s interface{ Shape(message string) any }
	if errors.As(f.Cause, &s) {
		return s.Shape(f.Err.Message)
	}
	return errorBody{Code: f.Status, Message: f.Err.Message}
}}

// isPreflight reports whether a browser asks whether a page may send a request to a sandbox.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && strings.Contains(
		strings.ToLower(r.Header.Get("Access-Control-Request-Headers")), strings.ToLower(headerID))
}

// answerPreflight lets any page send requests: they need a token, which no browser adds by itself.
func answerPreflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	allowPages(h)
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// allowPages lets pages of any origin read an answer.
func allowPages(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
}
