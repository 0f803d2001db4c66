package schema

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A one-line schema can make the validator visit a one-line value 2^64 times: {"allOf": [{"items": {"$ref": "#"}},
// {"items": {"$ref": "#"}}]}. The validator cannot be interrupted, so its visits are counted first. The count is never
// too low; it skips only what a type rules out.

// Bounds of that count, of what each byte of a value may add, and of the exponent of a number, whose exact value the
// validator uses. The validator also keeps what it finds wrong at each visit: place and reason up to detailedVisits
// visits, beyond that only the fact.
const (
	freeVisits     = 1 << 16
	visitsPerByte  = 2
	maxVisits      = 1 << 22
	detailedVisits = 1 << 14
	maxExponent    = 1000
)

var (
	errTooCostly = errors.New("checking it against the schema would take too long; write the schema with fewer " +
		"alternatives nested in each other")
	errExponent = errors.New("it has a number that is too large, or too near to 0")
)

// A costCounter counts the visits that are left.
type costCounter struct {
	left int64
	err  error
}

// cost counts how often validation visits a value of size bytes. It fails if that would take too long.
func cost(s *jsonschema.Schema, v any, size int) (visits int64, err error) {
	most := min(freeVisits+visitsPerByte*int64(size), maxVisits)
	w := &costCounter{left: most}
	w.addSchemas(v, s)
	w.spend(0)
	return most - w.left, w.err
}

// spend counts visits.
func (w *costCounter) spend(n int64) {
	if w.left -= n; w.left < 0 && w.err == nil {
		w.err = errTooCostly
	}
}

// addSchemas counts one visit of a value with each schema that is not nil, and the visits that follow from it.
func (w *costCounter) addSchemas(v any, list ...*jsonschema.Schema) {
	for _, s := range list {
		if s != nil && w.err == nil {
			w.addSchema(v, s)
		}
	}
}

func (w *costCounter) addSchema(v any, s *jsonschema.Schema) {
	// the targets of dynamic references are not known in advance
	if w.spend(1); w.err != nil || s.DynamicRef != nil || s.RecursiveRef != nil {
		w.err = errTooCostly
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
		w.spend(comparing(v, *s.Const))
	}
	if s.Enum != nil {
		w.spend(comparing(v, s.Enum.Values...))
	}
	w.addSchemas(v, s.Ref, s.Not, s.If, s.Then, s.Else, s.ContentSchema)
	w.addSchemas(v, s.AllOf...)
	w.addSchemas(v, s.AnyOf...)
	w.addSchemas(v, s.OneOf...)
	switch v := v.(type) {
	case map[string]any:
		w.addObject(v, s)
	case []any:
		w.addArray(v, s)
	}
}

// addMaybe is addSchemas for what may be a schema.
func (w *costCounter) addMaybe(v, of any) {
	s, _ := of.(*jsonschema.Schema)
	w.addSchemas(v, s)
}

func (w *costCounter) addObject(v map[string]any, s *jsonschema.Schema) {
	w.spend(int64(len(s.Required)))
	for _, of := range s.Dependencies {
		names, _ := of.([]string)
		w.spend(int64(len(names)))
		w.addMaybe(v, of)
	}
	for _, names := range s.DependentRequired {
		w.spend(int64(len(names)))
	}
	for _, of := range s.DependentSchemas {
		w.addSchemas(v, of)
	}
	for name, one := range v {
		w.addSchemas(one, s.Properties[name], s.UnevaluatedProperties)
		w.addMaybe(one, s.AdditionalProperties)
		w.addSchemas(name, s.PropertyNames)
		w.spend(int64(len(s.PatternProperties)))
		for _, of := range s.PatternProperties {
			w.addSchemas(one, of)
		}
	}
}

func (w *costCounter) addArray(v []any, s *jsonschema.Schema) {
	if s.UniqueItems {
		// All pairs of a few items are compared. Of many items, only those that have parts are compared closely.
		const few = 20
		compared := int64(len(v))
		if len(v) > few {
			compared = 0
			for _, one := range v {
				if hasParts(one) {
					compared++
				}
			}
		}
		all := parts(v)
		w.spend(all + compared*all/4)
	}
	tuple, _ := s.Items.([]*jsonschema.Schema)
	for i, one := range v {
		w.addSchemas(one, s.Items2020, s.Contains, s.UnevaluatedItems)
		w.addMaybe(one, s.Items)
		w.addMaybe(one, s.AdditionalItems)
		for _, list := range [][]*jsonschema.Schema{s.PrefixItems, tuple} {
			if i < len(list) {
				w.addSchemas(one, list[i])
			}
		}
	}
}

// comparing is the cost of comparing a value with others: each part of a composite, the exact value of each number,
// and next to nothing for the rest.
func comparing(v any, others ...any) (n int64) {
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

// mayBe reports whether a schema applies to a value of that type.
func mayBe(types *jsonschema.Types, v any) bool {
	if types == nil || types.IsEmpty() {
		return true
	}
	list := types.ToStrings()
	switch v.(type) {
	case map[string]any:
		return slices.Contains(list, "object")
	case []any:
		return slices.Contains(list, "array")
	case string:
		return slices.Contains(list, "string")
	case json.Number:
		return slices.Contains(list, "number") || slices.Contains(list, "integer")
	case bool:
		return slices.Contains(list, "boolean")
	}
	return slices.Contains(list, "null")
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
