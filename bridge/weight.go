package bridge

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema of a line can have a value of a line looked at 2^64 times: {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}. The validator cannot be
// told to stop, so it is counted first how often it would look at something. The count is never less than that; it leaves out nothing but what a
// type rules out.

// Bounds of that count, beside what each byte of a value may add, and of a number, whose exact value the validator works with.
const (
	freeWeight  = 1 << 16
	byteWeight  = 4
	maxExponent = 1000
)

var (
	errIntricate = errors.New("it would take too long to compare it with the schema; write that with fewer alternatives inside of one another")
	errExponent  = errors.New("it has a number that is too large, or too near to 0")
)

// A scale counts what is left to be looked at.
type scale struct {
	left int64
	err  error
}

// weigh fails where a value of size bytes takes too long to be compared with a schema.
func weigh(s *jsonschema.Schema, v any, size int) error {
	w := &scale{left: freeWeight + byteWeight*int64(size)}
	w.add(s, v)
	return w.err
}

// add counts one look at a value with a schema, and all that follow from it.
func (w *scale) add(s *jsonschema.Schema, v any) {
	if s == nil || w.err != nil {
		return
	}
	if w.left--; w.left < 0 || s.DynamicRef != nil || s.RecursiveRef != nil { // where those lead is not known before
		w.err = errIntricate
		return
	}
	if n, ok := v.(json.Number); ok && !plain(n) {
		w.err = errExponent
		return
	}
	if s.Bool != nil || !mayBe(s.Types, v) {
		return
	}
	w.all(v, s.Ref, s.Not, s.If, s.Then, s.Else, s.ContentSchema)
	w.all(v, s.AllOf...)
	w.all(v, s.AnyOf...)
	w.all(v, s.OneOf...)
	switch v := v.(type) {
	case map[string]any:
		w.object(s, v)
	case []any:
		w.array(s, v)
	}
}

func (w *scale) all(v any, list ...*jsonschema.Schema) {
	for _, s := range list {
		w.add(s, v)
	}
}

func (w *scale) object(s *jsonschema.Schema, v map[string]any) {
	for _, of := range s.Dependencies {
		w.any(of, v)
	}
	for _, of := range s.DependentSchemas {
		w.add(of, v)
	}
	for name, one := range v {
		w.all(one, s.Properties[name], s.UnevaluatedProperties)
		w.any(s.AdditionalProperties, one)
		w.add(s.PropertyNames, name)
		w.left -= int64(len(s.PatternProperties))
		for _, of := range s.PatternProperties {
			w.add(of, one)
		}
	}
}

func (w *scale) array(s *jsonschema.Schema, v []any) {
	tuple, _ := s.Items.([]*jsonschema.Schema)
	for i, one := range v {
		w.all(one, s.Items2020, s.Contains, s.UnevaluatedItems)
		w.any(s.Items, one)
		w.any(s.AdditionalItems, one)
		for _, list := range [][]*jsonschema.Schema{s.PrefixItems, tuple} {
			if i < len(list) {
				w.add(list[i], one)
			}
		}
	}
}

// any is add of what may be a schema.
func (w *scale) any(of, v any) {
	if s, ok := of.(*jsonschema.Schema); ok {
		w.add(s, v)
	}
}

// mayBe reports whether a schema goes on with a value of that type.
func mayBe(types *jsonschema.Types, v any) bool {
	if types == nil || types.IsEmpty() {
		return true
	}
	is := func(list ...string) bool {
		for _, t := range types.ToStrings() {
			for _, one := range list {
				if t == one {
					return true
				}
			}
		}
		return false
	}
	switch v.(type) {
	case map[string]any:
		return is("object")
	case []any:
		return is("array")
	case string:
		return is("string")
	case json.Number:
		return is("number", "integer")
	case bool:
		return is("boolean")
	}
	return is("null")
}

// plain reports whether a number can be worked with as it is.
func plain(n json.Number) bool {
	at := strings.IndexAny(string(n), "eE")
	if at < 0 {
		return true
	}
	e, err := strconv.Atoi(string(n[at+1:]))
	return err == nil && e <= maxExponent && e >= -maxExponent
}
