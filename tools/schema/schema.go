// Package schema checks values against JSON Schemas that come from outside: those of the tools of a host.
//
// A schema and a value can each be one line and still keep a validator busy for days. So this package bounds the text
// and the references of a schema, counts the work of each check before it does the check, and bounds the memory of all
// checks together. tools/bridge and its packages call it.
//
// The validator is santhosh-tekuri/jsonschema, because its compiled form is public: the count walks it. The MCP SDK
// brings a second library, google/jsonschema-go, whose compiled form is private. Only api/mcp uses that one, to
// describe its own tools in the SDK's type; nothing is validated there.
package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"berth/proto"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/sync/semaphore"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Bounds of a schema: of its text, and of its references. Each reference is followed for every value that it applies
// to.
const (
	maxSchema = 64 << 10
	maxRefs   = 64
)

// A Schema is a compiled schema; nil accepts everything.
type Schema struct{ compiled *jsonschema.Schema }

// noLoader loads no schema: a schema that refers to another by its address is refused.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("it is not part of the schema") }

// Compile compiles JSON Schema, draft 2020-12 unless the schema names another. at names it in errors.
func Compile(at string, raw json.RawMessage) (*Schema, error) {
	invalid := func(format string, args ...any) (*Schema, error) {
		return nil, proto.Errorf(proto.InvalidArgument, "", at, "%s %s", at, fmt.Sprintf(format, args...))
	}
	const name = "tool:schema"
	text := bytes.TrimSpace(raw)
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	if len(text) > maxSchema {
		return nil, proto.Errorf(proto.TooLarge, "", at, "%s has %d bytes; %d is the limit", at, len(text), maxSchema)
	}
	if bytes.Count(text, []byte(`$ref"`))+bytes.Count(text, []byte(`$dynamicRef"`)) > maxRefs {
		return invalid("has more than %d references; write it with fewer", maxRefs)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return invalid("is not valid JSON")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err = c.AddResource(name, doc); err == nil {
		var s *jsonschema.Schema
		if s, err = c.Compile(name); err == nil {
			return &Schema{s}, nil
		}
	}
	return invalid("is not a JSON Schema: %s", proto.Shorten(strings.ReplaceAll(err.Error(), name, ""), 300))
}

// maxChecked bounds the bytes of values that are validated at once: validation takes some hundred times the bytes of a
// value.
const maxChecked = 4 << 20

var checking = semaphore.NewWeighted(maxChecked)

// english is the language of the validator's messages.
var english = message.NewPrinter(language.English)

// Check returns an error that says which part of a value does not match the schema; at names the value.
func (s *Schema) Check(at string, raw json.RawMessage) error {
	if s == nil {
		return nil
	}
	room := int64(min(len(raw), maxChecked))
	_ = checking.Acquire(context.Background(), room) // no validation takes long
	defer checking.Release(room)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("%s is not valid JSON", at)
	}
	visits, err := cost(s.compiled, v, len(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if visits > detailedVisits {
		// below a "not" the validator keeps only whether the value fits
		if (&jsonschema.Schema{Not: s.compiled}).Validate(v) == nil {
			return fmt.Errorf("%s: it does not match the schema, and is too large to say where", at)
		}
		return nil
	}
	err = s.compiled.Validate(v)
	var bad *jsonschema.ValidationError
	if errors.As(err, &bad) {
		for len(bad.Causes) > 0 { // the first cause at the bottom is the most precise
			bad = bad.Causes[0]
		}
		path := strings.Join(append([]string{at}, bad.InstanceLocation...), ".")
		return fmt.Errorf("%s: %s", proto.Shorten(path, 200), proto.Shorten(bad.ErrorKind.LocalizedString(english),
			300))
	}
	return err
}

// MaxDepth bounds how deep values may be nested.
const MaxDepth = 64

// TooDeep reports whether a valid JSON text is nested deeper than MaxDepth.
func TooDeep(raw []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
