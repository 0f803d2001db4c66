package bridge

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A one-line schema can make the validator look at a one-line value 2^64 times: {"allOf": [{"items": {"$ref": "#"}},
// {"items": {"$ref": "#"}}]}. The validator cannot be interrupted, so its looks are counted first. The count is never
// too low; it skips only what a type rules out.

// Bounds of that count, of what each byte of a value may add, and of a number, whose exact value the validator uses.
// The validator also keeps what it finds wrong at each look: place and reason up to fullWeight looks, beyond that
// only the fact.
const (
	freeWeight  = 1 << 16
	byteWeight  = 2
	maxWeight   = 1 << 22
	fullWeight  = 1 << 14
	maxExponent = 1000
)

var (
	errIntricate = errors.New("it would take too long to compare it with the schema; write that with fewer " +
		"alternatives inside of one another")
	errExponent = errors.New("it has a number that is too large, or too near to 0")
)

// A costCounter counts the looks that are left.
type costCounter struct {
	left int64
	err  error
}

// schemaCost counts how often validation looks at a value of size bytes. It fails if that would take too long.
func schemaCost(s *jsonschema.Schema, v any, size int) (looks int64, err error) {
	most := min(freeWeight+byteWeight*int64(size), maxWeight)
	w := &costCounter{left: most}
	w.add(s, v)
	w.spend(0)
	return most - w.left, w.err
}

// spend counts looks.
func (w *costCounter) spend(n int64) {
	if w.left -= n; w.left < 0 && w.err == nil {
		w.err = errIntricate
	}
}

// add counts one look at a value with a schema, and all that follow from it.
func (w *costCounter) add(s *jsonschema.Schema, v any) {
	if s == nil || w.err != nil {
		return
	}
	// the targets of those are not known in advance
	if w.spend(1); w.err != nil || s.DynamicRef != nil || s.RecursiveRef != nil {
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
	if s.Const != nil {
		w.spend(equal(v, *s.Const))
	}
	if s.Enum != nil {
		w.spend(equal(v, s.Enum.Values...))
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

func (w *costCounter) all(v any, list ...*jsonschema.Schema) {
	for _, s := range list {
		w.add(s, v)
	}
}

func (w *costCounter) object(s *jsonschema.Schema, v map[string]any) {
	w.spend(int64(len(s.Required)))
	for _, of := range s.Dependencies {
		names, _ := of.([]string)
		w.spend(int64(len(names)))
		w.any(of, v)
	}
	for _, names := range s.DependentRequired {
		w.spend(int64(len(names)))
	}
	for _, of := range s.DependentSchemas {
		w.add(of, v)
	}
	for name, one := range v {
		w.all(one, s.Properties[name], s.UnevaluatedProperties)
		w.any(s.AdditionalProperties, one)
		w.add(s.PropertyNames, name)
		w.spend(int64(len(s.PatternProperties)))
		for _, of := range s.PatternProperties {
			w.add(of, one)
		}
	}
}

func (w *costCounter) array(s *jsonschema.Schema, v []any) {
	if s.UniqueItems {
		w.spend(unique(v))
	}
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

// equal is the cost of comparing a value with others: each part of a composite, the exact value of each number, and
// next to nothing for the rest.
func equal(v any, others ...any) (n int64) {
	_, number := v.(json.Number)
	for _, other := range others {
		switch _, same := other.(json.Number); {
		case number && same:
			n++
		case hasParts(v) && hasParts(other):
			n += parts(other)
		}
	}
	return n + int64(len(others))/64
}

// unique is the cost of comparing the items of an array with each other: all pairs of a few items. Of many items the
// validator compares only those closely that have parts.
func unique(v []any) int64 {
	const few = 20
	close := int64(len(v))
	if len(v) > few {
		close = 0
		for _, one := range v {
			if hasParts(one) {
				close++
			}
		}
	}
	all := parts(v)
	return all + close*all/4
}

func hasParts(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// parts is the number of values in a value, itself included.
func parts(v any) int64 {
	n := int64(1)
	switch v := v.(type) {
	case map[string]any:
		for _, one := range v {
			n += parts(one)
		}
	case []any:
		for _, one := range v {
			n += parts(one)
		}
	}
	return n
}

// any is add for what may be a schema.
func (w *costCounter) any(of, v any) {
	if s, ok := of.(*jsonschema.Schema); ok {
		w.add(s, v)
	}
}

// mayBe reports whether a schema applies to a value of that type.
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

// plain reports whether a number can be used as it is.
func plain(n json.Number) bool {
	at := strings.IndexAny(string(n), "eE")
	if at < 0 {
		return true
	}
	e, err := strconv.Atoi(string(n[at+1:]))
	return err == nil && e <= maxExponent && e >= -maxExponent
}
