package attack

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"berth/proto"
)

// A route is one operation in the API document that the daemon serves. Attackers read that document first.
type route struct {
	method, path string
	public       bool
	json         bool     // accepts a JSON body
	required     []string // required query keys
}

// routes reads the API document and returns the routes, always in the same order. A new route of the daemon is in the
// document, and so in every case that uses this list.
func (t *Target) routes(ctx context.Context) ([]route, error) {
	a, err := t.Raw(ctx, "GET", "/openapi.json", nil, nil)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Security    *[]any `json:"security"`
			RequestBody struct {
				Content map[string]any `json:"content"`
			} `json:"requestBody"`
			Parameters []struct {
				Name, In string
				Required bool
			} `json:"parameters"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(a.Body, &doc); err != nil || a.Status != http.StatusOK {
		return nil, fmt.Errorf("reading the document: %d %w", a.Status, err)
	}
	var list []route
	for path, methods := range doc.Paths {
		for method, op := range methods {
			_, takesJSON := op.RequestBody.Content["application/json"]
			r := route{method: strings.ToUpper(method), path: path, public: op.Security != nil &&
				len(*op.Security) == 0, json: takesJSON}
			for _, p := range op.Parameters {
				if p.In == "query" && p.Required {
					r.required = append(r.required, p.Name)
				}
			}
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b route) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.method, b.method))
	})
	return list, nil
}

// at returns the route's path and query with these values. A missing value becomes "x", which is a valid name but
// exists nowhere.
func (r route) at(values map[string]string) string {
	var b strings.Builder
	rest := r.path
	for {
		before, after, found := strings.Cut(rest, "{")
		b.WriteString(before)
		if !found {
			break
		}
		name, end, _ := strings.Cut(after, "}")
		b.WriteString(cmp.Or(values[name], "x"))
		rest = end
	}
	for i, name := range r.required {
		b.WriteString(map[bool]string{true: "?", false: "&"}[i == 0] + name + "=x")
	}
	return b.String()
}

// sample returns a minimal body for the route. It must pass the decoder, so that the refusal comes from the check
// that the case is about.
func (r route) sample() io.Reader {
	switch {
	case strings.HasSuffix(r.path, "/exec"):
		return strings.NewReader(`{"command":"true"}`)
	case strings.HasSuffix(r.path, "/signal"):
		return strings.NewReader(`{"signal":"TERM"}`)
	case strings.HasSuffix(r.path, "/resize"):
		return strings.NewReader(`{"rows":1,"cols":1}`)
	case strings.HasSuffix(r.path, "/move"):
		return strings.NewReader(`{"from":"a","to":"b"}`)
	case strings.HasSuffix(r.path, "/mkdir"), strings.HasSuffix(r.path, "/publish"):
		return strings.NewReader(`{"path":"a"}`)
	case strings.HasSuffix(r.path, "/inputs"):
		return strings.NewReader(`{"files":[]}`)
	case strings.HasSuffix(r.path, "/tool_use"):
		return strings.NewReader(`{"type":"tool_use","id":"1","name":"bash","input":{"command":"true"}}`)
	case r.json:
		return strings.NewReader(`{}`)
	}
	return nil
}

// forget removes the container of an answer at the end of the case. Some attacks on creation do create a container,
// which is no breach, but the container must not be left.
func (t *Target) forget(a *Answer) {
	var con proto.Container
	if json.Unmarshal(a.Body, &con) == nil && con.ID != "" {
		t.made = append(t.made, con.ID)
	}
}

// decode decodes a JSON answer.
func (a answer) decode(v any) error { return json.Unmarshal(a.body, v) }
