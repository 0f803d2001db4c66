package native

import (
	"cmp"
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"berth/api"
	"berth/api/strictjson"
	"berth/proto"
	"berth/session"
)

// route converts the row to a route of the server.
func (r row) route() api.Route {
	return api.Route{
		Method: r.method, Pattern: r.path, Where: r.where(), MaxBodyBytes: cmp.Or(bodyLimits[r.ID], maxJSON),
		Public: r.Public, Media: r.media(), Doc: &r.Operation,
		Act: r.auditAction(), Covered: coreAudited[r.ID],
		Handle: func(w http.ResponseWriter, req *http.Request, caller api.Caller) error {
			// Check this before the query, so that other callers learn nothing about the route.
			if r.Admin && !caller.Admin {
				return proto.Errorf(proto.PermissionDenied, "", "", "This needs an admin's API key; this one is not.")
			}
			q, err := r.ParseQuery(req.URL.RawQuery)
			if err != nil {
				return err
			}
			// Note these before the handler runs, so that entries of refused requests have them, too.
			for _, name := range namedKeys {
				api.Note(req.Context(), q.Get(name))
			}
			c := &call{w: w, r: req, owner: caller.Owner, query: q, status: r.status}
			v, err := r.handle(c)
			if err != nil || v == nil {
				return err
			}
			return c.json(c.status, v)
		},
	}
}

// A call is one request in a handler. It ends with the request.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	owner  string
	query  url.Values // checked: only keys of the route, with valid values
	status int        // of an answer in JSON; a handler may change it
}

// A handler serves one route. It returns what to answer as JSON; nil: it has written the answer.
type handler func(*call) (any, error)

// An action is a handler with the JSON types of its request and its answer, for the OpenAPI document.
type action struct {
	handle       handler
	status       int
	body, answer any  // values of these types; nil: none, or no JSON
	optional     bool // the body may be left out
	once         bool // takes an idempotency key
}

// get serves requests without a JSON body. An answer of type any is one that the row describes, or none.
func get[A any](do func(*call) (A, error)) action {
	var answer A
	return action{status: http.StatusOK, answer: answer, handle: func(c *call) (any, error) { return do(c) }}
}

// take serves requests with a JSON body. Decoding comes first: a body that cannot be read is a 400, whatever the path
// names.
func take[B, A any](do func(*call, B) (A, error)) action { return decode(strictjson.Decode, do) }

// mayTake is take for a body that may be left out.
func mayTake[B, A any](do func(*call, B) (A, error)) action {
	a := decode(strictjson.DecodeOptional, do)
	a.optional = true
	return a
}

func decode[B, A any](read func(*http.Request, any) error, do func(*call, B) (A, error)) action {
	var body B
	a := get(func(c *call) (answer A, err error) {
		var req B
		if err := read(c.r, &req); err != nil {
			return answer, err
		}
		return do(c, req)
	})
	a.body = body
	return a
}

// created answers with the status 201.
func (a action) created() action {
	a.status = http.StatusCreated
	return a
}

// accepted answers with the status 202.
func (a action) accepted() action {
	a.status = http.StatusAccepted
	return a
}

// repeatable documents that requests may have an idempotency key.
func (a action) repeatable() action {
	a.once = true
	return a
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

// One page of a list.
type page[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
	// Value of after for the next page; null on the last one.
	NextAfter *string `json:"next_after"`
}

// list makes the only page of a list that has no others. Clients iterate over data, so it is never null.
func list[T any](items []T, err error) (page[T], error) { return listPart(items, false, err, nil) }

// listPart makes one page of a list. The next one begins after an ID, not at a number, so that new entries do not
// shift it.
func listPart[T any](data []T, more bool, err error, id func(*T) *string) (page[T], error) {
	p := page[T]{Data: data, HasMore: more}
	if data == nil {
		p.Data = []T{}
	}
	if more {
		p.NextAfter = id(&data[len(data)-1])
	}
	return p, err
}

func (c *call) ctx() context.Context { return c.r.Context() }

// path returns the value of a wildcard of the path.
func (c *call) path(wildcard string) string { return c.r.PathValue(wildcard) }

// id returns the ID that most paths have.
func (c *call) id() string { return c.r.PathValue("id") }

// session returns the container that the path names. A container of another owner is not found, exactly like one that
// never existed, so that IDs reveal nothing about other owners.
func (e *edge) session(c *call) (*session.Session, error) {
	return e.Sessions.Get(c.owner, c.id())
}

// getIn is get in the container that the path names.
func getIn[A any](e *edge, do func(*call, *session.Session) (A, error)) action {
	return get(func(c *call) (answer A, err error) {
		s, err := e.session(c)
		if err != nil {
			return answer, err
		}
		return do(c, s)
	})
}

// files returns the files of the container that the path names, bound to the generation that the query names.
func (e *edge) files(c *call) (session.Files, error) {
	s, err := e.session(c)
	if s == nil || err != nil {
		return session.Files{}, err
	}
	return s.InGeneration(c.whole(ofGeneration.Name)), nil
}

// getFiles is get for the files of the container that the path names.
func getFiles[A any](e *edge, do func(*call, session.Files) (A, error)) action {
	return get(func(c *call) (answer A, err error) {
		f, err := e.files(c)
		if err != nil {
			return answer, err
		}
		return do(c, f)
	})
}

// exec returns the command that the path names.
func (e *edge) exec(c *call) (*session.Exec, error) {
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	return s.FindExec(c.path("exec"))
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
