package bridge

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

// A checker is a compiled schema; nil accepts everything.
type checker struct{ schema *jsonschema.Schema }

// noLoader loads no schema: a schema that refers to another by its address is refused.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("it is not part of the schema") }

// compile compiles JSON Schema, draft 2020-12 unless the schema names another. at names it in errors.
func compile(at string, raw json.RawMessage) (*checker, error) {
	text := bytes.TrimSpace(raw)
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	if len(text) > maxSchema {
		return nil, proto.Errorf(proto.TooLarge, "", at, "%s has %d bytes; %d is the limit", at, len(text), maxSchema)
	}
	if n := bytes.Count(text, []byte(`ef"`)); n > maxRefs && bytes.Count(text, []byte(`$ref"`))+bytes.Count(
		text, []byte(`$dynamicRef"`)) > maxRefs {
		return nil, invalid(at, "%s has more than %d references; write it with fewer", at, maxRefs)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, invalid(at, "%s is not valid JSON", at)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource("tool:schema", doc); err != nil {
		return nil, invalid(at, "%s is not a JSON Schema: %s", at, cut(err.Error(), 300))
	}
	s, err := c.Compile("tool:schema")
	if err != nil {
		return nil, invalid(at, "%s is not a JSON Schema: %s", at, cut(strings.ReplaceAll(err.Error(), "tool:schema",
			""), 300))
	}
	return &checker{s}, nil
}

// checking bounds the bytes of values that are validated at once: validation takes some hundred times the bytes of a
// value.
var checking = semaphore.NewWeighted(maxResult)

// english is the language of the validator's messages.
var english = message.NewPrinter(language.English)

// check says in a sentence what of a value does not fit; at names the value.
func (c *checker) check(at string, raw json.RawMessage) error {
	if c == nil {
		return nil
	}
	room := int64(min(len(raw), maxResult))
	_ = checking.Acquire(context.Background(), room) // no validation takes long
	defer checking.Release(room)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("%s is not valid JSON", at)
	}
	looks, err := schemaCost(c.schema, v, len(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if looks > fullWeight {
		// below a "not" the validator keeps only whether the value fits
		if (&jsonschema.Schema{Not: c.schema}).Validate(v) == nil {
			return fmt.Errorf("%s: it is not what the schema says, and too large to say where", at)
		}
		return nil
	}
	err = c.schema.Validate(v)
	var bad *jsonschema.ValidationError
	if errors.As(err, &bad) {
		for len(bad.Causes) > 0 { // the first cause at the bottom is the most precise
			bad = bad.Causes[0]
		}
		return fmt.Errorf("%s: %s", cut(strings.Join(append([]string{at}, bad.InstanceLocation...), "."), 200),
			cut(bad.ErrorKind.LocalizedString(english), 300))
	}
	return err
}

// A tool is one that can be called, with compiled schemas.
type tool struct {
	Tool
	input, output *checker
}

// prepare checks a tool and compiles its schemas. at names it in errors.
func prepare(at string, t Tool) (*tool, error) {
	if err := checkName(at+".name", t.Name); err != nil {
		return nil, err
	}
	if len(t.Description) > maxDescription {
		return nil, proto.Errorf(proto.TooLarge, "", at+".description", "%s.description has %d bytes; %d is the limit",
			at, len(t.Description), maxDescription)
	}
	if err := checkApproval(at+".approval", t.Approval); err != nil {
		return nil, err
	}
	ready := &tool{Tool: t}
	var err error
	if ready.input, err = compile(at+".input_schema", t.InputSchema); err != nil {
		return nil, err
	}
	ready.output, err = compile(at+".output_schema", t.OutputSchema)
	return ready, err
}

// prepareAll prepares a list of tools, by name.
func prepareAll(at string, list []Tool) (map[string]*tool, error) {
	if len(list) > MaxTools {
		return nil, invalid(at, "%d tools are too many; %d is the limit", len(list), MaxTools)
	}
	out := map[string]*tool{}
	for i, t := range list {
		here := fmt.Sprintf("%s.%d", at, i)
		ready, err := prepare(here, t)
		if err != nil {
			return nil, err
		}
		if out[t.Name] != nil {
			return nil, invalid(here+".name", "%s.name: the tool %s is there already; leave one of them out", here,
				t.Name)
		}
		out[t.Name] = ready
	}
	return out, nil
}

// maxDepth bounds how deep values may be nested.
const maxDepth = 64

// tooDeep reports whether a valid JSON text is nested deeper than maxDepth.
func tooDeep(raw []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
