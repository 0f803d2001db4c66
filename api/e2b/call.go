package e2b

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"berth/api"
	"berth/proto"
)

// A call is one request to the control plane.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	query  url.Values
	owner  string
	keyID  string
	admin  bool
	asked  string // the sandbox as the client named it
	status int    // of an answer with a body; 0 is 200
}

// A handler returns what the answer has as JSON, or nil for an answer without a body.
type handler func(*call) (any, error)

// serve makes a route's handler of h.
func serve(h handler) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, who api.Caller) error {
		c := &call{w: w, r: r, query: r.URL.Query(), owner: who.Owner, keyID: who.KeyID, admin: who.Admin,
			asked: sandboxID(r)}
		v, err := h(c)
		if err != nil {
			return err
		}
		if v == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		if c.status == 0 {
			c.status = http.StatusOK
		}
		return api.JSON(w, c.status, v)
	}
}

// sandboxID returns the ID in the path as this edge spells it.
func sandboxID(r *http.Request) string {
	id := r.PathValue("id")
	if label := proto.HostID(id); label != "" {
		return label
	}
	return id
}

// read decodes the body into v. A missing body leaves v as it is.
func (c *call) read(v any) error {
	data, err := io.ReadAll(c.r.Body)
	if err != nil || len(data) == 0 {
		return err
	}
	err = json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return proto.Invalid(wrong.Field, "%s must be %s, not %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return proto.Invalid("body", "the body is not valid JSON: %v", err)
}

// whole returns a whole number of the query within bounds, or def if it is missing.
func (c *call) whole(name string, def, least, most int64) (int64, error) {
	text := c.query.Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, proto.Invalid(name, "%s must be a whole number from %d to %d", name, least, most)
	}
	return n, nil
}
