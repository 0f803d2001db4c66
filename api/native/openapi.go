package native

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"berth/api"
	"berth/proto"
	"berth/tools/bridge"
)

// document builds the OpenAPI document from the rows. It is made once, at start.
// Routes, checks and document come from the same rows, so that none can say what the others do not
// do.
func document(i Info, rows []row) []byte {
	types := catalogue{map[string]schema{}, bounds(i)}
	paths := map[string]map[string]any{}
	for _, r := range rows {
		if paths[r.path] == nil {
			paths[r.path] = map[string]any{}
		}
		paths[r.path][strings.ToLower(r.method)] = r.operation(types)
	}
	link(rows, paths)
	// Messages of the websocket are in no route's body, but refuse unknown fields as well.
	types.seal(message{})
	types.seal(bridge.ClientMessage{})
	types.of(bridge.DaemonMessage{})
	body, err := json.MarshalIndent(schema{
		"openapi": "3.1.0",
		"info": schema{
			"title": "berth", "version": i.Version,
			"description": "Stateful Linux containers for agents and the people who run them. Unknown fields and " +
				"query keys are refused by name, but by the routes of hosted APIs (/v1/files, /v1/skills, " +
				"/v1/messages). Every answer has a Request-Id.",
		},
		"security":   []any{schema{"key": []string{}}, schema{"bearer": []string{}}},
		"paths":      paths,
		"components": schema{"schemas": types.schemas, "securitySchemes": schemes},
	}, "", " ")
	if err != nil {
		// of literals alone: every start would fail, and so does every test
		panic("the OpenAPI document: " + err.Error())
	}
	return append(body, '\n')
}

// Either of the two will do: SDKs of hosted APIs send the first, most other tools know the second.
var schemes = schema{
	"key":    schema{"type": "apiKey", "in": "header", "name": "X-Api-Key"},
	"bearer": schema{"type": "http", "scheme": "bearer"},
}

// The operationId is the name that generators of clients give a function: to change one breaks
// their users.
func (r row) operation(types catalogue) schema {
	o := schema{"operationId": r.id, "tags": []string{r.tag}, "summary": r.does, "responses": r.responses(types)}
	if d := r.description(); d != "" {
		o["description"] = d
	}
	if p := r.parameters(); len(p) > 0 {
		o["parameters"] = p
	}
	if r.body != nil {
		o["requestBody"] = schema{"required": !r.optional, "content": forms(types, r.body)}
		// Blocks of models are loose: they carry fields of which this API knows nothing.
		if c := r.body[0]; c.media == "application/json" && !r.loose {
			types.seal(c.of)
		}
	}
	if r.public {
		o["security"] = []any{}
	}
	return o
}

// That a key must be an admin's is said in words, for OpenAPI's security schemes do not tell kinds
// of one key apart.
func (r row) description() string {
	if r.admin {
		return strings.TrimSpace("Needs an admin's API key. " + r.more)
	}
	return r.more
}

func (r row) parameters() (list []any) {
	// Any text that is not empty: an ID that cannot be is a 404 and no 400.
	for _, name := range api.Wildcards(r.path) {
		list = append(list, schema{"name": name, "in": "path", "required": true, "schema": schema{"type": "string",
			"minLength": 1}})
	}
	for _, p := range r.query {
		list = append(list, p.parameter("query"))
	}
	for _, p := range r.header {
		list = append(list, p.parameter("header"))
	}
	return list
}

// Only what is checked is promised: a pattern here without its check would be a lie that a fuzzer
// finds.
func (p param) parameter(in string) schema {
	s := schema{"type": "string"}
	switch p.kind {
	case whole:
		s = schema{"type": "integer", "minimum": p.least, "maximum": cmp.Or(p.max, math.MaxInt64)}
	case flag:
		s = schema{"type": "boolean"}
	case moment:
		s["format"] = "date-time"
	case mode:
		s["pattern"] = "^0*[1-7][0-7]{0,3}$"
	}
	if p.choices != nil {
		s["enum"] = p.choices
	}
	if p.pattern != "" {
		s["pattern"] = p.pattern
	}
	if p.required && p.kind == text {
		s["minLength"] = 1
	}
	if p.repeat {
		s = schema{"type": "array", "items": s}
	}
	out := schema{"name": p.name, "in": in, "schema": s, "description": p.does}
	if p.required {
		out["required"] = true
	}
	return out
}

// What the server does to every route is added here and not in the rows, where it would be
// forgotten.
func (r row) responses(types catalogue) schema {
	out := schema{}
	for status, contents := range r.answers {
		a := schema{"description": http.StatusText(status)}
		if len(contents) > 0 {
			a["content"] = forms(types, contents)
		}
		if h := headers(contents); len(h) > 0 {
			a["headers"] = h
		}
		out[strconv.Itoa(status)] = a
	}
	fails := r.fails
	// a value with a slash, or none, makes another path, which may be there for other methods
	if strings.Contains(r.path, "{") {
		fails = append(slices.Clone(fails), http.StatusMethodNotAllowed)
	}
	if r.admin {
		fails = append(slices.Clone(fails), http.StatusForbidden)
	}
	if r.act() != "" && !r.public { // the audit log may be full
		fails = append(slices.Clone(fails), r.auditFails())
	}
	if r.body != nil && r.failure == nil {
		fails = append(slices.Clone(fails), http.StatusUnsupportedMediaType)
	}
	for _, status := range fails {
		body := r.failure
		if body == nil {
			body = failure{}
		}
		a := schema{"description": http.StatusText(status), "content": forms(types, js(body))}
		if status == http.StatusBadRequest {
			a["content"].(schema)["text/plain"] = schema{} // of what is no HTTP, and is answered before it is a request
		}
		if status == http.StatusTooManyRequests {
			a["headers"] = headers([]content{
				{headers: map[string]string{"Retry-After": "Seconds until it makes sense to try again."}}})
		}
		out[strconv.Itoa(status)] = a
	}
	// net/http gives this answer by itself, to any path, before there is a request to route.
	const large = http.StatusRequestHeaderFieldsTooLarge
	out[strconv.Itoa(large)] = schema{"description": http.StatusText(large), "content": schema{"text/plain": schema{}}}
	return out
}

// A failure is the body of every error of this edge. It is api.Plain's.
type failure struct {
	Error     proto.Error `json:"error"`
	RequestID string      `json:"request_id"`
}

// Values are text whatever they hold: a header has no types.
func headers(contents []content) schema {
	out := schema{}
	for _, c := range contents {
		for name, does := range c.headers {
			out[name] = schema{"description": does, "schema": schema{"type": "string"}}
		}
	}
	return out
}

// serverSent is the schema of one server-sent event whose data is JSON.
func serverSent(data schema) schema {
	return object([]string{"data"}, schema{
		"data":  schema{"type": "string", "contentMediaType": "application/json", "contentSchema": data},
		"event": stringType(), "id": stringType(),
	})
}

// forms are the forms of a body by media type. Bytes have no schema.
func forms(types catalogue, contents []content) schema {
	out := schema{}
	for _, c := range contents {
		switch of := c.of.(type) {
		case nil:
			out[c.media] = schema{}
		case schema:
			if len(of) > 0 { // written by hand
				out[c.media] = schema{"schema": of}
				continue
			}
			out[c.media] = schema{"schema": schema{"type": "object"}}
		default:
			s := types.of(of)
			if c.media == eventType {
				s = serverSent(s)
			}
			out[c.media] = schema{"schema": s}
		}
	}
	return out
}
