package native

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"berth/api"
	"berth/proto"
	"berth/session"
)

// A call is one request on its way through a handler.
// A call lives as long as its request; nothing keeps one.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	owner string
	query url.Values // only keys that the route knows, with values it takes
}

// A handler serves one route.
type handler func(*call) error

// route is the row as the server takes it.
func (r row) route() api.Route {
	return api.Route{
		Method: r.method, Pattern: r.path, Where: r.where, MaxBodyBytes: cmp.Or(bodyLimits[r.ID], maxJSON),
		Public: r.Public, Media: r.media(), Doc: &r.Operation,
		Act: r.auditAction(), Covered: coreAudited[r.ID],
		Handle: func(w http.ResponseWriter, req *http.Request, c api.Caller) error {
			// Before the query is looked at: what an admin's route takes is nobody else's
			// business.
			if r.Admin && !c.Admin {
				return proto.Errorf(proto.PermissionDenied, "", "", "This needs an admin's API key; this one is not.")
			}
			q, err := r.parseQuery(req.URL.RawQuery)
			if err != nil {
				return err
			}
			// Noted before the handler runs, so that refused acts are in the log with what they
			// were about.
			for _, name := range namedKeys {
				api.Note(req.Context(), q.Get(name))
			}
			in := &call{w, req, c.Owner, q}
			// The context carries the generation to wherever the container is used, so that no
			// handler can forget to ask.
			in.r = req.WithContext(session.InGeneration(req.Context(), in.whole(ofGeneration.Name)))
			return r.handle(in)
		},
	}
}

// namedKeys are the query keys that name what a request is about, for the audit log.
var namedKeys = []string{"path", "name", "ref"}

// media is what the route's body may be called. Bytes may be called anything.
func (r row) media() (list []string) {
	for _, c := range r.Body {
		if c.Of == nil {
			return []string{"*/*"}
		}
		list = append(list, c.Media)
	}
	return list
}

// json answers with v.
func (c *call) json(status int, v any) error { return api.JSON(c.w, status, v) }

// Write sends part of a raw body. Its error says that the client has gone, which is nobody's fault.
func (c *call) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil {
		err = proto.Errorf(proto.Canceled, "", "", "the client went away")
	}
	return n, err
}

// ReadFrom sends a raw body that may be a file, which the kernel can send by itself. Whether an error is the client's
// or the file's is for the server to tell apart.
func (c *call) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.w, r) }

// rawBody says what a raw body is, and that a browser is not to guess otherwise: it is the container's
// words, not ours.
func rawBody(h http.Header, mediaType string) {
	h.Set("Content-Type", mediaType)
	h.Set("X-Content-Type-Options", "nosniff")
	// A page that a container made must not run scripts with this origin's rights, should somebody
	// open it in a browser.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
}

// list answers with {"data": […]}.
func list[T any](c *call, items []T) error {
	// Clients iterate over data, so it is never null.
	if items == nil {
		items = []T{}
	}
	return c.json(http.StatusOK, page[T]{items})
}

// A page is a list that is never cut.
type page[T any] struct {
	Data []T `json:"data"`
}

// decodeOptional is api.Decode for a body that may be left out.
func (c *call) decodeOptional(v any) error {
	// The body has the route's bound already; see bodyLimit.
	data, err := io.ReadAll(c.r.Body)
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return err
	}
	return api.DecodeBytes(data, v)
}

// decodeLoosely is api.Decode for what a model wrote: fields that v does not have are left alone.
func (c *call) decodeLoosely(v any) error {
	var raw json.RawMessage
	if err := api.Decode(c.r, &raw); err != nil {
		return err
	}
	// The decoder's own words would name types of Go, which mean nothing to whoever sends a block.
	if err := json.Unmarshal(raw, v); err != nil {
		return proto.Errorf(proto.InvalidArgument, "", "", "The request body is not a tool-use block: it needs "+
			"type, id and name as strings.")
	}
	return nil
}

// session finds the container that the path names.
// A container of another owner is not found, as one that never was: an ID must not be good for
// finding out what others have.
func (e *edge) session(c *call) (*session.Session, error) {
	return e.Sessions.Get(c.owner, c.r.PathValue("id"))
}

// exec finds the command that the path names.
func (e *edge) exec(c *call) (*session.Exec, error) {
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	return s.FindExec(c.r.PathValue("exec"))
}

// wantsEvents reports whether the client asked for server-sent events.
func (c *call) wantsEvents() bool {
	for part := range strings.SplitSeq(strings.Join(c.r.Header.Values("Accept"), ","), ",") {
		// Weights are ignored: whoever names the type can read it.
		if t, _, err := mime.ParseMediaType(part); err == nil && t == "text/event-stream" {
			return true
		}
	}
	return false
}
