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

// A schema is one of JSON Schema 2020-12.
type schema = map[string]any

// fields are those of an input, by name.
type fields map[string]schema

// object is the schema of a tool's input. What it does not name is refused, since a field that is spelled wrong would
// be one that does nothing.
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

func whole(what string) schema {
	s := schema{"type": "integer"}
	if what != "" {
		s["description"] = what
	}
	return s
}

func choice(what string, of ...string) schema {
	return schema{"type": "string", "enum": of, "description": what}
}

// containerField is the way to another container than the session's.
var containerField = text1("ID of a container to do it in, instead of the session's own.")

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

// outcomeSchema is what run_code answers with, made from the type itself, so that it is never another one.
var outcomeSchema = schemaOf[code.Outcome]()

func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[proto.Time]():      {Type: "string", Format: "date-time"},
	}})
	if err != nil { // of a type of this program's, so the first test finds it
		panic(err)
	}
	return s
}

func validText(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }
