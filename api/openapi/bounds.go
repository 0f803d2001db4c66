package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// numeric are the terms of a schema tag that take a number, and what JSON Schema calls them.
var numeric = map[string]string{
	"min": "minimum", "max": "maximum",
	"minLength": "minLength", "maxLength": "maxLength",
	"minItems": "minItems", "maxItems": "maxItems", "maxProperties": "maxProperties",
}

// bound narrows the schema of a field by the terms of its schema tag, which are separated by spaces:
//
//	max=86400         a bound; so are min, minLength, maxLength, minItems, maxItems and maxProperties
//	orZero=0.1:3600   0, which stands for the default, or a number in this range, whose end may be missing
//	enum=|user|root   one of these strings; the first one here is empty
//	const=python      this string
//	or=networkMode    what Config.Named has by this name may stand in place of the field's type
//	noNUL             what Config.Named has by this name
//
// The core enforces the same bounds. A fuzzer that follows the document compares the two.
func (b builder) bound(s Schema, tag, field string) Schema {
	var instead Schema
	for term := range strings.FieldsSeq(tag) {
		name, value, _ := strings.Cut(term, "=")
		switch {
		case numeric[name] != "":
			s[numeric[name]] = json.Number(value)
		case name == "orZero":
			least, most, _ := strings.Cut(value, ":")
			bounds := Schema{"minimum": json.Number(least)}
			if most != "" {
				bounds["maximum"] = json.Number(most)
			}
			s["anyOf"] = []any{Schema{"const": 0}, bounds}
		case name == "enum":
			s["enum"] = strings.Split(value, "|")
		case name == "const":
			s["const"] = value
		case name == "or":
			instead = b.named(value, field)
		default:
			maps.Copy(s, b.named(name, field))
		}
	}
	if instead != nil {
		return Schema{"oneOf": []any{instead, s}}
	}
	return s
}

func (b builder) named(name, field string) Schema {
	s, ok := b.Named[name]
	if !ok {
		panic(fmt.Sprintf("the schema tag of %s names %q, which there is not", field, name))
	}
	return s
}
