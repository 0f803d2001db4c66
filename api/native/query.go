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
		if err := checkParam(r.Query[i], values); err != nil {
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

// checkParam checks the values of a query key.
func checkParam(p openapi.Param, values []string) error {
	if len(values) > 1 && !p.Repeat {
		return proto.Invalid(p.Name, "The query key %q is given %d times.", p.Name, len(values))
	}
	for _, v := range values {
		if err := checkValue(p, v); err != nil {
			return err
		}
	}
	return nil
}

// checkValue checks one value of a query key.
func checkValue(p openapi.Param, v string) error {
	switch {
	case p.Choices != nil && !slices.Contains(p.Choices, v):
		return proto.Invalid(p.Name, "%s must be one of %s, not %.80q.", p.Name, strings.Join(p.Choices, ", "), v)
	case p.Kind == openapi.User && !proto.ValidUser(v):
		return proto.Invalid(p.Name, "%s %.80q: %s.", p.Name, v, proto.UserRule)
	case p.Kind == openapi.Whole && !isWhole(v, p.Max):
		return proto.Invalid(p.Name, "%s must be a whole number from 0%s, not %.80q.", p.Name, upTo(p.Max), v)
	case p.Kind == openapi.Flag && v != "true" && v != "false":
		return proto.Invalid(p.Name, "%s must be true or false, not %.80q.", p.Name, v)
	case p.Kind == openapi.Date && !isMoment(v):
		return proto.Invalid(p.Name, "%s must be a time such as 2006-01-02T15:04:05Z, not %.80q.", p.Name, v)
	case p.Kind == openapi.Mode && !isMode(v):
		return proto.Invalid(p.Name, "%s must be octal permission bits such as 0644, not %.80q.", p.Name, v)
	}
	return nil
}

// isWhole refuses a sign, which ParseInt accepts.
func isWhole(v string, most int64) bool {
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && n >= 0 && v[0] != '+' && (most == 0 || n <= most)
}

func upTo(most int64) string {
	if most == 0 {
		return " on"
	}
	return " to " + strconv.FormatInt(most, 10)
}

// isMode accepts up to four octal digits, with setuid, setgid and sticky bits, but not 0.
func isMode(v string) bool {
	n, err := strconv.ParseUint(v, 8, 32)
	return err == nil && n > 0 && n <= 0o7777
}

// isMoment accepts RFC 3339, which requires a time zone.
func isMoment(v string) bool {
	_, err := time.Parse(time.RFC3339, v)
	return err == nil
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
