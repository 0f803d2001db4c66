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

// A call is one request in a handler. It ends with the request.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	owner string
	query url.Values // checked: only keys of the route, with valid values
}

// A handler serves one route.
type handler func(*call) error

// route converts the row to a route of the server.
func (r row) route() api.Route {
	return api.Route{
		Method: r.method, Pattern: r.path, Where: r.where, MaxBodyBytes: cmp.Or(bodyLimits[r.ID], maxJSON),
		Public: r.Public, Media: r.media(), Doc: &r.Operation,
		Act: r.auditAction(), Covered: coreAudited[r.ID],
		Handle: func(w http.ResponseWriter, req *http.Request, c api.Caller) error {
			// Check this before the query, so that other callers learn nothing about the route.
			if r.Admin && !c.Admin {
				return proto.Errorf(proto.PermissionDenied, "", "", "This needs an admin's API key; this one is not.")
			}
			q, err := r.parseQuery(req.URL.RawQuery)
			if err != nil {
				return err
			}
			// Note these before the handler runs, so that entries of refused requests have them, too.
			for _, name := range namedKeys {
				api.Note(req.Context(), q.Get(name))
			}
			return r.handle(&call{w, req, c.Owner, q})
		},
	}
}

// namedKeys are the query keys that the audit log records as items.
var namedKeys = []string{"path", "name", "ref"}

// media lists the media types of the route's body. A body of bytes may have any type.
func (r row) media() (list []string) {
	for _, c := range r.Body {
		if c.Of == nil {
			return []string{"*/*"}
		}
		list = append(list, c.Media)
	}
	return list
}

// json answers with v as JSON.
func (c *call) json(status int, v any) error { return api.JSON(c.w, status, v) }

// Write sends part of a raw body. An error means that the client has gone.
func (c *call) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil {
		err = proto.Errorf(proto.Canceled, "", "", "the client went away")
	}
	return n, err
}

// ReadFrom sends a raw body, which may be a file that the kernel sends by itself. The server tells errors of the
// client from those of the file.
func (c *call) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.w, r) }

// rawBody sets the headers of a raw body. The content comes from the container, so browsers must not guess its type.
func rawBody(h http.Header, mediaType string) {
	h.Set("Content-Type", mediaType)
	h.Set("X-Content-Type-Options", "nosniff")
	// A page from a container must not run scripts with the rights of this origin.
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

// A page is a list in one piece.
type page[T any] struct {
	Data []T `json:"data"`
}

// decodeOptional is api.Decode for an optional body.
func (c *call) decodeOptional(v any) error {
	// The server has limited the body.
	data, err := io.ReadAll(c.r.Body)
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return err
	}
	return api.DecodeBytes(data, v)
}

// decodeLoosely is api.Decode for a block of a model: unknown fields are ignored.
func (c *call) decodeLoosely(v any) error {
	var raw json.RawMessage
	if err := api.Decode(c.r, &raw); err != nil {
		return err
	}
	// Messages of this decoder name Go types, which mean nothing to the caller.
	if err := json.Unmarshal(raw, v); err != nil {
		return proto.Errorf(proto.InvalidArgument, "", "", "The request body is not a tool-use block: it needs "+
			"type, id and name as strings.")
	}
	return nil
}

// session returns the container that the path names. A container of another owner is not found, exactly like one that
// never existed, so that IDs reveal nothing about other owners.
func (e *edge) session(c *call) (*session.Session, error) {
	return e.Sessions.Get(c.owner, c.r.PathValue("id"))
}

// inSession returns a handler that works in the container that the path names.
func (e *edge) inSession(handle func(*call, *session.Session) error) handler {
	return func(c *call) error {
		s, err := e.session(c)
		if err != nil {
			return err
		}
		return handle(c, s)
	}
}

// files returns the files of the container that the path names, bound to the generation that the query names.
func (e *edge) files(c *call) (session.Files, error) {
	s, err := e.session(c)
	if s == nil || err != nil {
		return session.Files{}, err
	}
	return s.InGeneration(c.whole(ofGeneration.Name)), nil
}

// inFiles returns a handler that works on the files of the container that the path names.
func (e *edge) inFiles(handle func(*call, session.Files) error) handler {
	return func(c *call) error {
		f, err := e.files(c)
		if err != nil {
			return err
		}
		return handle(c, f)
	}
}

// exec returns the command that the path names.
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
		// Weights are ignored: a client that names the type can read it.
		if t, _, err := mime.ParseMediaType(part); err == nil && t == "text/event-stream" {
			return true
		}
	}
	return false
}
