package mcp

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"

	"berth/code"
	"berth/proto"

	"github.com/google/jsonschema-go/jsonschema"
)

// A schema is a JSON Schema 2020-12.
type schema = map[string]any

// fields are the fields of an input by name.
type fields map[string]schema

// object is the schema of a tool's input. Unknown fields are refused, since a misspelt field would have no effect.
func object(required []string, f fields) schema {
	s := schema{"type": "object", "properties": f, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func text1(what string) schema  { return schema{"type": "string", "description": what} }
func flag(what string) schema   { return schema{"type": "boolean", "description": what} }
func number(what string) schema { return schema{"type": "number", "minimum": 0, "description": what} }

func integer(what string) schema {
	s := schema{"type": "integer"}
	if what != "" {
		s["description"] = what
	}
	return s
}

func choice(what string, of ...string) schema {
	return schema{"type": "string", "enum": of, "description": what}
}

// containerField selects another container than the session's.
var containerField = text1("ID or name of a container to do it in, instead of the session's own.")

// handleField selects the container of a call that belongs to no session.
var handleField = text1("The container to do it in: a name of your choice, such as work, or the ID of one. The first " +
	"call with a new name creates the container: letters, digits, _ . and -.")

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

// outcomeSchema is the schema of the answer of run_code, made from its type.
var outcomeSchema = schemaOf[code.Outcome]()

func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[proto.Time]():      {Type: "string", Format: "date-time"},
	}})
	if err != nil { // the type is constant, so the first test would find it
		panic(err)
	}
	return s
}

func validText(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }
