package openapi

import (
	"net/url"
	"slices"
	"strings"

	"berth/proto"
)

// ParseQuery checks a query against the parameters of the operation. Unknown, repeated and malformed keys are refused
// by name, so that a misspelt key is never ignored.
func (o Operation) ParseQuery(raw string) (url.Values, error) {
	// URL.Query would drop what it cannot read.
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, proto.Invalid("", "The query string cannot be read: escape ';' and '%%' as %%3B and %%25.")
	}
	for name, values := range q {
		i := slices.IndexFunc(o.Query, func(p Param) bool { return p.Name == name })
		if i < 0 {
			return nil, proto.Invalid(strings.ToValidUTF8(name[:min(len(name), 80)], ""), "Unknown query key %.80q; "+
				"this endpoint takes %s.", name, o.keys())
		}
		if err := o.Query[i].Check(values); err != nil {
			return nil, err
		}
	}
	for _, p := range o.Query {
		// Empty counts as missing: no required key allows an empty value.
		if p.Required && q.Get(p.Name) == "" {
			return nil, proto.Invalid(p.Name, "The query key %q is required.", p.Name)
		}
	}
	return q, nil
}

// keys lists the query keys of the operation, for an error.
func (o Operation) keys() string {
	if len(o.Query) == 0 {
		return "none"
	}
	names := make([]string, len(o.Query))
	for i, p := range o.Query {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}
