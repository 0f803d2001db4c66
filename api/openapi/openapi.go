// Package openapi builds an OpenAPI 3.1 document from route tables and Go types.
//
// An edge describes each of its routes with an Operation. Schemas come from the Go types of bodies by reflection:
// names and omission follow their json tags, bounds their schema tags (see schema.go), and descriptions their doc
// comments, which a test of package native collects. What the server does to every route, such as 415 for a wrong
// media type, is added here.
//
// The package knows no route and no type of the API. Package native/document calls it.
package openapi

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Schema is a JSON Schema, as OpenAPI 3.1 has them.
type Schema = map[string]any

// An Entry is one route of the document.
type Entry struct {
	Method, Path string
	Audited      bool // is refused with 503 while the audit log cannot be written
	Keyless      bool // some requests need no API key
	*Operation
}

// An Operation describes a route.
type Operation struct {
	// ID names the function in generated clients: changing one breaks their users.
	ID          string
	Tag         string // the heading that it stands under
	Summary     string // one line
	Description string // what a caller has to know besides; may be empty
	Query       []Param
	Header      []Param // headers with a meaning for this route alone
	Body        []Content
	Optional    bool // the body may be left out
	Loose       bool // the body may have fields that its type does not list, and null for those that may be left out
	Answers     map[int][]Content
	Fails       []int // statuses that carry an error
	Failure     any   // a value of the error's type, or its Schema; nil is Config.Failure
	Public      bool  // needs no API key
	Admin       bool  // needs an admin's
}

// A Content is one form that a body can have.
type Content struct {
	Media   string
	Of      any               // a value of its JSON type, its Schema, or Forms; nil for bytes
	Data    any               // the same for the elements of its field data, where the type does not say
	Headers map[string]string // of an answer: description by name
}

// Forms are types of a body of which a header selects one. OpenAPI cannot express that: the schema has the fields of
// all, and requires those that all of them require.
type Forms []any

// A Kind is what the value of a parameter must be.
type Kind int

// The kinds.
const (
	Text  Kind = iota
	Whole      // a whole number
	Flag       // true or false
	Mode       // octal permission bits
	Date       // a time, RFC 3339
	User       // a user of a container
)

// Printable is the pattern of text without control characters.
const Printable = `^[^\x00-\x1f\x7f-\x9f]*$`

// A Param is one query key or header that a route knows.
type Param struct {
	Name        string
	Kind        Kind
	Description string
	Choices     []string // nil: any value
	Pattern     string   // what the handler requires of a text
	Required    bool
	Repeat      bool
	Min         int64 // of a whole number
	Max         int64 // of a whole number; 0 is no bound
}

// A Link says where an answer names what other routes are about. Readers, client generators and fuzzers follow links
// from the route that makes a thing to the routes that use it.
type Link struct {
	From   string // ID of an operation
	Status int
	To     string            // prefix of a path, whose wildcards Values fill
	Values map[string]string // runtime expressions of OpenAPI by wildcard
}

// A Tag is a heading that operations stand under.
type Tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// An Example is one request to an operation and its answer.
type Example struct {
	Parameters map[string]any `json:"parameters,omitempty"` // values of wildcards, query keys and headers
	Body       any            `json:"body,omitempty"`       // a JSON value; of bytes, their text
	Status     int            `json:"status"`
	Answer     any            `json:"answer,omitempty"` // the same; nil: none, or bytes that are no text
}

// A Socket names the types of messages of a websocket.
type Socket struct {
	Client any // a value of the type of messages from the client
	Server any // a value of the type of messages to the client
}

// A Config is what the document has besides its routes.
type Config struct {
	Title, Version, Description string

	License  string             // its SPDX identifier
	Tags     []Tag              // headings, in the order of the document; operations may have no others
	Examples map[string]Example // by ID of an operation
	Failure  any                // a value of the error type of routes that name no other
	Sockets  map[string]Socket  // of operations that open a websocket, by ID
	Links    []Link
	Names    map[reflect.Type]string // names of types where they are not those of Go
	Named    map[string]Schema       // what schema tags name
	Types    map[string]Schema       // rules for whole types, and types that embed them, by name
	Enums    map[string][]string     // values of string types that have few, by "package.Type"
	Special  map[reflect.Type]Schema // types whose JSON is not what their fields say
	OneOf    map[reflect.Type][]any  // types that are written as one of several, by values of those
	Comments map[string]string       // descriptions by "package.Type" and "package.Type.Field"
}

// Document builds the document as indented JSON. Lists are sorted and types stand in it once, so that two documents
// can be compared line by line. It panics for a Config or entries that do not fit together.
func Document(cfg Config, entries []Entry) []byte {
	b := builder{Config: cfg, schemas: map[string]Schema{}}
	paths := map[string]Schema{}
	for _, e := range entries {
		if paths[e.Path] == nil {
			paths[e.Path] = Schema{}
		}
		paths[e.Path][strings.ToLower(e.Method)] = b.operation(e)
	}
	b.link(entries, paths)
	info := Schema{"title": cfg.Title, "version": cfg.Version, "description": cfg.Description}
	if cfg.License != "" {
		info["license"] = Schema{"name": cfg.License, "identifier": cfg.License}
	}
	body, err := json.MarshalIndent(Schema{
		"openapi":  "3.1.0",
		"info":     info,
		"tags":     b.tags(entries),
		"servers":  []any{Schema{"url": "/"}}, // relative to where the document came from
		"security": keys,
		"paths":    paths,
		"components": Schema{"schemas": b.schemas, "securitySchemes": Schema{
			// Either is enough: SDKs of hosted APIs send the first, most other tools know the second.
			"key": Schema{"type": "apiKey", "in": "header", "name": "X-Api-Key"},
			"bearer": Schema{"type": "http", "scheme": "bearer", "description": "An API key, or an access token if " +
				"the daemon runs with `--oauth-issuer`."},
		}},
	}, "", " ")
	if err != nil {
		panic("the OpenAPI document: " + err.Error()) // every start and every test would show it
	}
	return append(body, '\n')
}

// tags returns the headings that operations stand under.
func (b builder) tags(entries []Entry) []Tag {
	list := []Tag{}
	for _, t := range b.Tags {
		if slices.ContainsFunc(entries, func(e Entry) bool { return e.Tag == t.Name }) {
			list = append(list, t)
		}
	}
	return list
}

// operation describes one route.
func (b builder) operation(e Entry) Schema {
	o := Schema{"operationId": e.ID, "tags": []string{e.Tag}, "summary": e.Summary, "responses": b.responses(e)}
	description := e.Description
	if e.Admin { // in words, since security schemes do not distinguish kinds of one key
		description = strings.TrimSpace("Needs an admin's API key. " + description)
	}
	if description != "" {
		o["description"] = description
	}
	if p := parameters(e); len(p) > 0 {
		o["parameters"] = p
	}
	if socket, ok := b.Sockets[e.ID]; ok {
		// OpenAPI has no place for messages. They refuse unknown fields as bodies do.
		b.seal(socket.Client)
		o["x-websocket"] = Schema{"client": b.of(socket.Client), "server": b.of(socket.Server)}
	}
	if e.Body != nil {
		o["requestBody"] = Schema{"required": !e.Optional, "content": b.forms(e.Body)}
		switch c := e.Body[0]; {
		case e.Loose:
			b.loosen(c.Of)
		case c.Media == "application/json":
			b.seal(c.Of)
		}
	}
	if example, ok := b.Examples[e.ID]; ok {
		example.addTo(o, e)
	}
	switch {
	case e.Public:
		o["security"] = []any{}
	case e.Keyless:
		o["security"] = append([]any{Schema{}}, keys...)
	}
	return o
}

// keys are the two ways to send an API key.
var keys = []any{Schema{"key": []string{}}, Schema{"bearer": []string{}}}

func parameters(e Entry) (list []any) {
	for part := range strings.SplitSeq(e.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			// Any text: an ID that cannot exist is a 404 and no 400.
			list = append(list, Schema{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true,
				"schema": Schema{"type": "string", "minLength": 1}})
		}
	}
	for _, p := range e.Query {
		list = append(list, p.schema("query"))
	}
	for _, p := range e.Header {
		list = append(list, p.schema("header"))
	}
	return list
}

func (p Param) schema(in string) Schema {
	s := Schema{"type": "string"}
	switch p.Kind {
	case Whole:
		s = Schema{"type": "integer", "minimum": p.Min, "maximum": cmp.Or(p.Max, math.MaxInt64)}
	case Flag:
		s = Schema{"type": "boolean"}
	case Date:
		s["format"] = "date-time"
	case Mode:
		s["pattern"] = "^0*[1-7][0-7]{0,3}$"
	}
	if p.Kind == User {
		s["minLength"], s["maxLength"], s["pattern"] = 1, 256, Printable
	}
	if p.Choices != nil {
		s["enum"] = p.Choices
	}
	if p.Pattern != "" {
		s["pattern"] = p.Pattern
	}
	if p.Required && p.Kind == Text {
		s["minLength"] = 1
	}
	if p.Repeat {
		s = Schema{"type": "array", "items": s}
	}
	out := Schema{"name": p.Name, "in": in, "schema": s, "description": p.Description}
	if p.Required {
		out["required"] = true
	}
	return out
}

// responses describes the answers of a route, and the errors that the server adds to every route.
func (b builder) responses(e Entry) Schema {
	out := Schema{}
	for status, contents := range e.Answers {
		a := Schema{"description": http.StatusText(status)}
		if len(contents) > 0 {
			a["content"] = b.forms(contents)
		}
		if h := headers(contents); len(h) > 0 {
			a["headers"] = h
		}
		out[strconv.Itoa(status)] = a
	}
	fails := slices.Clone(e.Fails)
	if strings.Contains(e.Path, "{") { // a value with a slash makes another path, which may serve other methods
		fails = append(fails, http.StatusMethodNotAllowed)
	}
	if e.Admin {
		fails = append(fails, http.StatusForbidden)
	}
	failure := e.Failure
	if failure == nil {
		failure = b.Failure
		if e.Audited {
			fails = append(fails, http.StatusServiceUnavailable)
		}
		if e.Body != nil {
			fails = append(fails, http.StatusUnsupportedMediaType)
		}
	}
	for _, status := range fails {
		content := b.forms([]Content{{Media: "application/json", Of: failure}})
		a := Schema{"description": http.StatusText(status), "content": content}
		if status == http.StatusTooManyRequests {
			a["headers"] = headers([]Content{{Headers: map[string]string{
				"Retry-After": "Seconds until it makes sense to try again."}}})
		}
		out[strconv.Itoa(status)] = a
	}
	const large = http.StatusRequestHeaderFieldsTooLarge // net/http answers, before there is a request, and not in JSON
	out[strconv.Itoa(large)] = Schema{"description": http.StatusText(large)}
	return out
}

func headers(contents []Content) Schema {
	out := Schema{}
	for _, c := range contents {
		for name, description := range c.Headers {
			out[name] = Schema{"description": description, "schema": Schema{"type": "string"}}
		}
	}
	return out
}

// forms describes the forms of a body by media type.
func (b builder) forms(contents []Content) Schema {
	out := Schema{}
	for _, c := range contents {
		if c.Of == nil {
			out[c.Media] = Schema{"schema": Schema{"type": "string", "format": "binary"}}
			continue
		}
		s := b.of(c.Of)
		if c.Data != nil {
			s["properties"].(Schema)["data"].(Schema)["items"] = b.of(c.Data)
		}
		if _, typed := c.Of.(Schema); c.Media == "text/event-stream" && !typed { // one event, whose data is JSON
			s = Object([]string{"data"}, Schema{"event": Schema{"type": "string"}, "id": Schema{"type": "string"},
				"data": Schema{"type": "string", "contentMediaType": "application/json", "contentSchema": s}})
		}
		out[c.Media] = Schema{"schema": s}
	}
	return out
}

// Object is the schema of an object. Required is left out where it is empty, which older validators refuse.
func Object(required []string, properties Schema) Schema {
	s := Schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// link adds the links to the operations that they come from.
func (b builder) link(entries []Entry, paths map[string]Schema) {
	for _, l := range b.Links {
		for _, source := range entries {
			if source.ID != l.From {
				continue
			}
			operation := paths[source.Path][strings.ToLower(source.Method)].(Schema)
			answer := operation["responses"].(Schema)[strconv.Itoa(l.Status)].(Schema)
			links, _ := answer["links"].(Schema)
			if links == nil {
				links = Schema{}
				answer["links"] = links
			}
			for _, target := range entries {
				if l.reaches(target.Path) {
					links[target.ID] = Schema{"operationId": target.ID, "parameters": l.Values}
				}
			}
		}
	}
}

// reaches reports whether the link fills all wildcards of a path.
func (l Link) reaches(path string) bool {
	rest, below := strings.CutPrefix(path, l.To)
	return below && (rest == "" || rest[0] == '/') && !strings.Contains(rest, "{")
}
