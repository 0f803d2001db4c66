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

// Input takes the fields of a list out of an input and checks them. Other fields are dropped, and named in dropped.
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
	input, err = checkFields("input", schema, given)
	for name := range given {
		if !slices.ContainsFunc(schema, func(f proto.ToolField) bool { return f.Name == name }) {
			dropped = append(dropped, name)
		}
	}
	slices.Sort(dropped)
	return input, dropped, err
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
	_, err = checkFields("output", schema, object)
	return err
}

// checkFields returns the fields of an object that the list has. Null counts as absent.
func checkFields(path string, schema []proto.ToolField, object map[string]any) (map[string]any, error) {
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
		v, err := typed(at, f.FieldType, v)
		if err != nil {
			return nil, err
		}
		if f.ItemsType != "" {
			items := v.([]any)
			for i := range items {
				if items[i], err = typed(fmt.Sprintf("%s.%d", at, i), f.ItemsType, items[i]); err != nil {
					return nil, err
				}
			}
		}
		out[f.Name] = v
	}
	return out, nil
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
