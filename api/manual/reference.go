package manual

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A Reference is the OpenAPI document as a person reads it.
type Reference struct {
	Title, Version, Description string
	Tags                        []Tag
	Types                       []Type
}

// A Tag is a heading with its operations.
type Tag struct {
	Name, ID, Description string
	Operations            []Operation
}

// An Operation is one route.
type Operation struct {
	ID, Method, Path, Summary, Description string
	Access                                 string // who may use it, where an ordinary key does not say it
	Parameters                             []Field
	Body                                   *Content // nil: none
	Answers                                []Answer
	Fails                                  string // statuses of errors
	Failure                                []Piece
	Curl                                   string
	Example                                string // answer to Curl
	Socket                                 []Field
}

// A Content is a body.
type Content struct {
	Media    string
	Type     []Piece
	Fields   []Field // of an object
	Optional bool
}

// An Answer is an answer that is no error.
type Answer struct {
	Status, Text string
	Contents     []Content
	Headers      []Field
}

// A Type is a type of several bodies.
type Type struct {
	Name, Description string
	Fields            []Field
}

// A Field is a field of an object, or a parameter.
type Field struct {
	Name, In    string // In is of a parameter: path, query or header
	Type        []Piece
	Required    bool
	Deprecated  bool
	Description string
}

// A Piece is part of the name of a type, with the name of the type that it leads to, if any.
type Piece struct{ Text, Link string }

type schema = map[string]any

// A document is what Read needs of the OpenAPI document.
type document struct {
	Info struct{ Title, Version, Description string }
	Tags []struct{ Name, Description string }
	// by path and method
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []parameter
	RequestBody                       *struct {
		Required bool
		Content  map[string]content
	}
	Responses map[string]struct {
		Description string
		Content     map[string]content
		Headers     map[string]struct{ Description string }
	}
	Security *[]map[string]any
	Socket   map[string]schema `json:"x-websocket"`
}

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                schema
	Example               any
}

type content struct {
	Schema  schema
	Example any
}

// Read reads an OpenAPI document.
func Read(text []byte) (*Reference, error) {
	var d document
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a bound of 2^63 is no float
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document: %w", err)
	}
	ref := &Reference{Title: d.Info.Title, Version: d.Info.Version, Description: d.Info.Description}
	for _, t := range d.Tags {
		tag := Tag{Name: t.Name, ID: "tag-" + strings.ReplaceAll(strings.ToLower(t.Name), " ", "-"),
			Description: t.Description}
		for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
			for _, method := range []string{"get", "post", "put", "patch", "delete"} {
				if o, ok := d.Paths[path][method]; ok && slices.Contains(o.Tags, t.Name) {
					tag.Operations = append(tag.Operations, d.operation(strings.ToUpper(method), path, o))
				}
			}
		}
		ref.Tags = append(ref.Tags, tag)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		about, _ := s["description"].(string)
		ref.Types = append(ref.Types, Type{name, about, d.fields(s, "")})
	}
	return ref, nil
}

func (d document) operation(method, path string, o operation) Operation {
	out := Operation{ID: o.OperationID, Method: method, Path: path, Summary: o.Summary, Description: o.Description}
	if o.Security != nil {
		out.Access = "Needs no API key."
		if len(*o.Security) > 0 {
			out.Access = "Some requests need no API key."
		}
	}
	for _, p := range o.Parameters {
		out.Parameters = append(out.Parameters, Field{Name: p.Name, In: p.In, Type: d.typeOf(p.Schema),
			Required: p.Required, Description: sentences(p.Description, bounds(p.Schema))})
	}
	if o.RequestBody != nil {
		media := preferred(o.RequestBody.Content)
		c := d.content(media, o.RequestBody.Content[media].Schema)
		c.Fields = d.fields(o.RequestBody.Content[media].Schema, "")
		c.Optional = !o.RequestBody.Required
		out.Body = &c
	}
	var fails []string
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		r := o.Responses[status]
		if status >= "4" {
			if fails = append(fails, status); r.Content != nil {
				out.Failure = d.typeOf(r.Content[preferred(r.Content)].Schema)
			}
			continue
		}
		a := Answer{Status: status, Text: r.Description}
		for _, media := range slices.Sorted(maps.Keys(r.Content)) {
			a.Contents = append(a.Contents, d.content(media, r.Content[media].Schema))
		}
		for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
			a.Headers = append(a.Headers, Field{Name: name, Description: r.Headers[name].Description})
		}
		out.Answers = append(out.Answers, a)
	}
	out.Fails = strings.Join(fails, ", ")
	for _, side := range slices.Sorted(maps.Keys(o.Socket)) {
		out.Socket = append(out.Socket, Field{Name: "from the " + side, Type: d.typeOf(o.Socket[side])})
	}
	if out.Answers == nil || out.Answers[0].Status != switching {
		out.Curl = curl(method, path, o)
	}
	for _, a := range out.Answers {
		for _, c := range a.Contents {
			if x := o.Responses[a.Status].Content[c.Media].Example; x != nil {
				out.Example = shown(x)
			}
		}
	}
	return out
}

// switching is the status of a websocket, which curl cannot open.
const switching = "101"

// preferred is the media type that a reader wants to see: JSON, or the first.
func preferred(contents map[string]content) string {
	if _, has := contents["application/json"]; has {
		return "application/json"
	}
	return slices.Sorted(maps.Keys(contents))[0]
}

func (d document) content(media string, s schema) Content {
	c := Content{Media: media, Type: d.typeOf(s)}
	if s["$ref"] == nil { // else it is among the types
		c.Fields = d.fields(s, "")
	}
	return c
}

// resolve follows a reference, alone or as the one part of allOf.
func (d document) resolve(s schema) schema {
	if all, ok := s["allOf"].([]any); ok && len(all) == 1 {
		s = all[0].(schema)
	}
	if ref, ok := s["$ref"].(string); ok {
		return d.Components.Schemas[refName(ref)]
	}
	return s
}

func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// fields describes the fields of an object: required ones first. Fields of objects without a name follow theirs.
func (d document) fields(s schema, prefix string) (list []Field) {
	s = d.resolve(s)
	properties, _ := s["properties"].(schema)
	required := map[string]bool{}
	names, _ := s["required"].([]any)
	for _, name := range names {
		required[fmt.Sprint(name)] = true
	}
	for _, name := range slices.SortedFunc(maps.Keys(properties), func(a, b string) int {
		if required[a] != required[b] {
			return map[bool]int{true: -1, false: 1}[required[a]]
		}
		return cmp.Compare(a, b)
	}) {
		f := properties[name].(schema)
		about, _ := f["description"].(string)
		deprecated, _ := f["deprecated"].(bool)
		list = append(list, Field{Name: prefix + name, Type: d.typeOf(f), Required: required[name],
			Deprecated: deprecated, Description: sentences(about, bounds(f))})
		if f["$ref"] == nil && f["allOf"] == nil {
			list = append(list, d.fields(f, prefix+name+".")...)
		}
	}
	return list
}

// typeOf names the type of a schema.
func (d document) typeOf(s schema) []Piece {
	if ref, ok := s["$ref"].(string); ok {
		name := refName(ref)
		return []Piece{{name, name}}
	}
	for _, key := range []string{"allOf", "oneOf", "anyOf"} {
		parts, _ := s[key].([]any)
		var pieces []Piece
		for i, part := range parts {
			if part := part.(schema); part["if"] == nil {
				if i > 0 {
					pieces = append(pieces, Piece{Text: " or "})
				}
				pieces = append(pieces, d.typeOf(part)...)
			}
		}
		if len(pieces) > 0 {
			return pieces
		}
	}
	kind, _ := s["type"].(string)
	suffix := ""
	if kinds, ok := s["type"].([]any); ok {
		kind, suffix = fmt.Sprint(kinds[0]), " or null"
	}
	switch {
	case kind == "array":
		items, _ := s["items"].(schema)
		return append([]Piece{{Text: "list of "}}, append(d.typeOf(items), Piece{Text: suffix})...)
	case s["format"] == "binary":
		kind = "bytes"
	case s["format"] == "date-time":
		kind = "time"
	case s["const"] != nil:
		kind = shown(s["const"])
	case kind == "" && s["enum"] != nil:
		kind = "string"
	case kind == "":
		kind = "any JSON"
	}
	if of, ok := s["additionalProperties"].(schema); ok && kind == "object" {
		return append([]Piece{{Text: "map of "}}, append(d.typeOf(of), Piece{Text: suffix})...)
	}
	return []Piece{{Text: kind + suffix}}
}

// bounds says what values a schema allows, as far as a sentence can.
func bounds(s schema) string {
	var list []string
	if items, ok := s["items"].(schema); ok && items["enum"] != nil {
		s = items
	}
	if values, ok := s["enum"].([]any); ok {
		var names []string
		for _, v := range values {
			if v != "" {
				names = append(names, "`"+fmt.Sprint(v)+"`")
			}
		}
		list = append(list, "One of "+strings.Join(names, ", "))
	}
	for _, b := range []struct{ key, text string }{{"minimum", "At least %v"}, {"maximum", "At most %v"},
		{"maxLength", "At most %v characters"}, {"maxItems", "At most %v entries"},
		{"maxProperties", "At most %v entries"}} {
		if v, ok := s[b.key]; ok && fmt.Sprint(v) != "0" && fmt.Sprint(v) != "9223372036854775807" {
			list = append(list, fmt.Sprintf(b.text, v))
		}
	}
	return strings.Join(list, ". ")
}

// sentences joins texts, and ends each with a full stop.
func sentences(texts ...string) string {
	var list []string
	for _, t := range texts {
		if t = strings.TrimSuffix(strings.TrimSpace(t), "."); t != "" {
			list = append(list, t+".")
		}
	}
	return strings.Join(list, " ")
}

// shown writes an example for a reader.
func shown(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err.Error() // of a value that was decoded from JSON, there is none
	}
	return strings.TrimSpace(b.String())
}

// curl writes the example of an operation as a command.
func curl(method, path string, o operation) string {
	query := url.Values{}
	var headers []string
	for _, p := range o.Parameters {
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(fmt.Sprint(cmp.Or(p.Example, any(p.Name)))))
		case p.Example == nil:
		case p.In == "query":
			values, many := p.Example.([]any)
			if !many {
				values = []any{p.Example}
			}
			for _, v := range values {
				query.Add(p.Name, fmt.Sprint(v))
			}
		default:
			headers = append(headers, fmt.Sprintf("-H %s", quote(p.Name+": "+fmt.Sprint(p.Example))))
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	words := []string{`curl "$BERTH_URL` + path + `"`}
	body := bodyArguments(o)
	if method != http.MethodGet && (method != http.MethodPost || body == nil) {
		words[0] = "curl -X " + method + strings.TrimPrefix(words[0], "curl")
	}
	if o.Security == nil {
		words = append(words, `-H "X-Api-Key: $BERTH_API_KEY"`)
	}
	return strings.Join(slices.Concat(words, headers, body), " \\\n  ")
}

// bodyArguments are curl's arguments for the body of an example.
func bodyArguments(o operation) []string {
	if o.RequestBody == nil {
		return nil
	}
	for _, media := range slices.Sorted(maps.Keys(o.RequestBody.Content)) {
		x := o.RequestBody.Content[media].Example
		form, isForm := x.(schema)
		switch {
		case x == nil:
		case media == "multipart/form-data" && isForm:
			var list []string
			for _, name := range slices.Sorted(maps.Keys(form)) {
				values, many := form[name].([]any)
				if !many {
					values = []any{form[name]}
				}
				for _, v := range values {
					at := map[bool]string{true: "@", false: ""}[strings.HasPrefix(name, "file")]
					list = append(list, "-F "+quote(name+"="+at+fmt.Sprint(v)))
				}
			}
			return list
		case media == "application/json":
			compact, _ := json.Marshal(x) // it was decoded from JSON
			return []string{"-H 'Content-Type: application/json'", "-d " + quote(string(compact))}
		default:
			return []string{"-H " + quote("Content-Type: "+media), "--data-binary " + quote(shown(x))}
		}
	}
	if !o.RequestBody.Required {
		return nil
	}
	return []string{"-H " + quote("Content-Type: "+preferred(o.RequestBody.Content)), "--data-binary @FILE"}
}

// quote writes a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
