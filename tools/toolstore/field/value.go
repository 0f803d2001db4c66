package field

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"berth/proto"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds how deep values may be nested. No sensible input is deeper, and readers in the container can go
// much deeper.
const maxDepth = 64

// Input takes the fields of a list out of an input and checks them, also those of objects in it. Other fields are
// dropped, and named in dropped. A nil list takes the whole input.
func Input(schema []proto.ToolField, raw []byte) (input map[string]any, dropped []string, err error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	v, err := parse("input", raw)
	if err != nil {
		return nil, nil, err
	}
	given, ok := v.(map[string]any)
	if !ok {
		return nil, nil, proto.Invalid("input", "input must be an object, not %s", kindOf(v))
	}
	if schema == nil {
		return given, nil, nil
	}
	c := checker{root: "input."}
	input, err = c.fields("input", schema, given)
	slices.Sort(c.dropped)
	return input, c.dropped, err
}

// Output checks the output of a tool. A nil list allows everything; fields outside the list stay.
func Output(schema []proto.ToolField, raw []byte) error {
	v, err := parse("output", raw)
	if err != nil || schema == nil {
		return err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return proto.Invalid("output", "output must be an object with the fields of output_schema, not %s; have run "+
			"return a dict", kindOf(v))
	}
	_, err = new(checker).fields("output", schema, object)
	return err
}

// A checker checks values against fields, and collects what it drops.
type checker struct {
	root    string // the beginning of paths, which dropped leaves out
	dropped []string
}

// maxDropped bounds how many dropped fields are named.
const maxDropped = 100

// fields returns the fields of an object that the list has. Null counts as absent.
func (c *checker) fields(path string, schema []proto.ToolField, object map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for _, f := range schema {
		at, v := path+"."+f.Name, object[f.Name]
		if v == nil {
			if f.Required {
				return nil, proto.Invalid(at, "%s is required and is missing; give it a value of type %s", at,
					f.FieldType)
			}
			continue
		}
		v, err := c.field(at, f, v)
		if err != nil {
			return nil, err
		}
		out[f.Name] = v
	}
	for name := range object {
		known := slices.ContainsFunc(schema, func(f proto.ToolField) bool { return f.Name == name })
		if !known && len(c.dropped) < maxDropped {
			c.dropped = append(c.dropped, strings.TrimPrefix(path+"."+name, c.root))
		}
	}
	return out, nil
}

// field returns a value that fits a field.
func (c *checker) field(at string, f proto.ToolField, v any) (any, error) {
	v, err := typed(at, f.FieldType, v)
	if err != nil {
		return nil, err
	}
	if err := checkBounds(at, f, v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		if len(f.Properties) > 0 {
			return c.fields(at, f.Properties, v)
		}
	case []any:
		item := f.ItemsSchema
		if item == nil && f.ItemsType != "" {
			item = &proto.ToolField{FieldType: f.ItemsType}
		}
		for i := range v {
			if item == nil {
				break
			}
			if v[i], err = c.field(fmt.Sprintf("%s.%d", at, i), *item, v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// checkBounds checks a value of the right type against the bounds of its field.
func checkBounds(at string, f proto.ToolField, v any) error {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Float64()
		switch {
		case err != nil:
			return proto.Invalid(at, "%s: the number %.40s is too large", at, v)
		case f.Minimum != nil && n < *f.Minimum:
			return proto.Invalid(at, "%s must be at least %v, not %.40s", at, *f.Minimum, v)
		case f.Maximum != nil && n > *f.Maximum:
			return proto.Invalid(at, "%s must be at most %v, not %.40s", at, *f.Maximum, v)
		}
	case []any:
		switch n := int64(len(v)); {
		case f.MinItems != nil && n < *f.MinItems:
			return proto.Invalid(at, "%s must have at least %d items, not %d", at, *f.MinItems, n)
		case f.MaxItems != nil && n > *f.MaxItems:
			return proto.Invalid(at, "%s must have at most %d items, not %d", at, *f.MaxItems, n)
		}
	}
	if len(f.EnumValues) == 0 {
		return nil
	}
	var allowed []string
	for _, raw := range f.EnumValues {
		if isValue(raw, v) {
			return nil
		}
		allowed = append(allowed, string(raw))
	}
	return proto.Invalid(at, "%s must be one of %s", at, proto.Shorten(strings.Join(allowed, ", "), 400))
}

// isValue reports whether an enumerated value is v. A number or truth value may be enumerated as a string.
func isValue(raw json.RawMessage, v any) bool {
	given, err := Encode(v)
	if err != nil {
		return false
	}
	want := jsontext.Value(slices.Clone(raw))
	if want.Canonicalize() != nil {
		return false
	}
	got := jsontext.Value(given)
	if got.Canonicalize() != nil {
		return false
	}
	var quoted string
	return string(want) == string(got) || json.Unmarshal(raw, &quoted) == nil && quoted == string(got)
}

// typed is v if it has the type. A whole number written as 2.0 or 2e3 becomes one without a fraction.
func typed(at, name string, v any) (any, error) {
	ok := false
	switch name {
	case typeString:
		_, ok = v.(string)
	case typeBoolean:
		_, ok = v.(bool)
	case typeArray:
		_, ok = v.([]any)
	case typeObject:
		_, ok = v.(map[string]any)
	case typeNumber:
		_, ok = v.(json.Number)
	case typeInteger:
		if n, is := v.(json.Number); is {
			if v, ok = whole(n); !ok {
				return nil, proto.Invalid(at, "%s must be of type %s, not %.40s", at, name, n)
			}
		}
	}
	if !ok {
		return nil, proto.Invalid(at, "%s must be of type %s, not %s", at, name, kindOf(v))
	}
	return v, nil
}

// exact is the first whole number after which floating-point numbers skip some.
const exact = 1 << 53

func whole(n json.Number) (json.Number, bool) {
	if !strings.ContainsAny(string(n), ".eE") {
		return n, true
	}
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > exact {
		return n, false
	}
	return json.Number(strconv.FormatInt(int64(f), 10)), true
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return "the number " + string(v)[:min(40, len(v))]
	case []any:
		return "an array"
	}
	return "an object"
}

// parse reads one JSON value and keeps numbers as written. It refuses duplicate names, text that is not UTF-8, and
// numbers beyond the range of floating point: they would not arrive as they were sent.
func parse(path string, raw []byte) (v any, err error) {
	if !jsontext.Value(raw).IsValid() {
		return nil, proto.Invalid(path, "%s is not valid JSON, has a name twice in one object, or is not UTF-8", path)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, proto.Invalid(path, "%s is not valid JSON", path)
	}
	return v, checkValue(path, v, 0)
}

// checkValue bounds the content of a value.
func checkValue(at string, v any, depth int) error {
	short := proto.Shorten(at, 200)
	if depth > maxDepth {
		return proto.Invalid(short, "%s is nested more than %d levels deep; send it flatter, or as a file", short,
			maxDepth)
	}
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err != nil || math.IsInf(f, 0) {
			return proto.Invalid(short, "%s: the number %.40s is too large; send it as a string", short, v)
		}
	case []any:
		for i, item := range v {
			if err := checkValue(fmt.Sprintf("%s.%d", at, i), item, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := checkValue(at+"."+name, v[name], depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Encode writes a value as compact JSON.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// MapStrings applies fn to each text in a JSON value, names included.
func MapStrings(raw json.RawMessage, fn func(string) string) (json.RawMessage, error) {
	v, err := parse("value", raw)
	if err != nil {
		return nil, err
	}
	return Encode(mapStrings(v, fn))
}

func mapStrings(v any, fn func(string) string) any {
	switch v := v.(type) {
	case string:
		return fn(v)
	case []any:
		for i := range v {
			v[i] = mapStrings(v[i], fn)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			out[fn(name)] = mapStrings(item, fn)
		}
		return out
	}
	return v
}
