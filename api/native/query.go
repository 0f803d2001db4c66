package native

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
)

// parseQuery checks a query against the parameters of the route. Unknown, repeated and malformed keys are refused by
// name, so that a misspelt key is never ignored.
func (r row) parseQuery(raw string) (url.Values, error) {
	// r.URL.Query would drop what it cannot read.
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, proto.Invalid("", "The query string cannot be read: escape ';' and '%%' as %%3B and %%25.")
	}
	for name, values := range q {
		i := slices.IndexFunc(r.Query, func(p openapi.Param) bool { return p.Name == name })
		if i < 0 {
			return nil, proto.Invalid(api.Shortened(name), "Unknown query key %.80q; this endpoint takes %s.", name,
				r.keys())
		}
		if err := r.Query[i].Check(values); err != nil {
			return nil, err
		}
	}
	for _, p := range r.Query {
		// Empty counts as missing: no required key allows an empty value.
		if p.Required && q.Get(p.Name) == "" {
			return nil, proto.Invalid(p.Name, "The query key %q is required.", p.Name)
		}
	}
	return q, nil
}

// keys lists the query keys of the route, for an error.
func (r row) keys() string {
	if len(r.Query) == 0 {
		return "none"
	}
	names := make([]string, len(r.Query))
	for i, p := range r.Query {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// moment returns the time under a key, or the zero time.
func (c *call) moment(name string) time.Time {
	t, _ := time.Parse(time.RFC3339, c.query.Get(name)) // checked, or absent
	return t
}

// whole returns the number under a key, or 0.
func (c *call) whole(name string) int64 {
	n, _ := strconv.ParseInt(c.query.Get(name), 10, 64) // checked, or absent
	return n
}

// limit is whole for a limit, of which 0 is none.
func (c *call) limit(name string) int64 {
	if n := c.whole(name); n != 0 || !c.query.Has(name) {
		return n
	}
	return proto.NoLimit
}

func (c *call) flag(name string) bool { return c.query.Get(name) == "true" }

// mode returns the permission bits under a key, or 0.
func (c *call) mode(name string) uint32 {
	n, _ := strconv.ParseUint(c.query.Get(name), 8, 32) // checked, or absent
	return uint32(n)
}

// as returns the user that accesses files.
func (c *call) as() string {
	if as := c.query.Get("as"); as != "" {
		return as
	}
	return proto.UserDefault
}

// labels reads label=k=v. A value may contain '='.
func (c *call) labels() (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range c.query["label"] {
		k, v, ok := strings.Cut(pair, "=")
		// A repeated pair is harmless; two values for one key could never match.
		if old, twice := labels[k]; !ok || k == "" || twice && old != v {
			return nil, proto.Invalid("label", "label %.80q: write label=key=value, each key once.", pair)
		}
		labels[k] = v
	}
	return labels, nil
}
