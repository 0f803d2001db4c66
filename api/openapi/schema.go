package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// A builder collects the schemas of named types, which the document has once each.
type builder struct {
	Config
	schemas map[string]Schema
}

// of is the schema of a value's type.
func (b builder) of(v any) Schema {
	switch v := v.(type) {
	case Schema:
		if len(v) == 0 {
			return Schema{"type": "object"}
		}
		return v
	case Forms:
		return b.merge(v)
	}
	return b.schema(reflect.TypeOf(v))
}

// merge describes several types of one body.
func (b builder) merge(forms Forms) Schema {
	properties := Schema{}
	var required []string
	for i, v := range forms {
		of, needs := Schema{}, []string{}
		b.collect(reflect.TypeOf(v), of, &needs)
		for name, s := range of {
			if other, known := properties[name]; known && !reflect.DeepEqual(other, s) {
				s = Schema{"anyOf": []any{other, s}}
			}
			properties[name] = s
		}
		if i == 0 {
			required = needs
		}
		required = slices.DeleteFunc(required, func(name string) bool { return !slices.Contains(needs, name) })
	}
	slices.Sort(required)
	return Object(required, properties)
}

func (b builder) schema(t reflect.Type) Schema {
	if s, ok := b.Special[t]; ok {
		return maps.Clone(s) // bounds are written into it
	}
	if values, ok := b.Enums[commentKey(t, "")]; ok {
		return Schema{"type": "string", "enum": values}
	}
	if parts, ok := b.OneOf[t]; ok {
		var list []any
		for _, v := range parts {
			list = append(list, b.of(v))
		}
		return Schema{"oneOf": list}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.schema(t.Elem())
	case reflect.Slice:
		return Schema{"type": "array", "items": b.schema(t.Elem())}
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": b.schema(t.Elem())}
	case reflect.Struct:
		return b.object(t)
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Float64, reflect.Float32:
		return Schema{"type": "number"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return Schema{"type": "integer"}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Schema{"type": "integer", "minimum": 0}
	}
	return Schema{} // an interface: anything
}

// object is the schema of a struct: a reference if the type has a name that a reference can have.
func (b builder) object(t reflect.Type) Schema {
	name := b.name(t)
	if name == "" {
		return b.fields(t)
	}
	if _, known := b.schemas[name]; !known {
		b.schemas[name] = nil // it may refer to itself
		b.schemas[name] = b.fields(t)
	}
	return Schema{"$ref": "#/components/schemas/" + name}
}

// name is what the document calls a type. Types that are not exported have a name like the others. A generic type is
// named by its parameter and itself: page[Job] is JobPage.
func (b builder) name(t reflect.Type) string {
	name := cmp.Or(b.Names[t], t.Name())
	if name == "" {
		return ""
	}
	if generic, of, ok := strings.Cut(name, "["); ok {
		of = strings.TrimSuffix(of, "]")
		name = capitalized(of[strings.LastIndexByte(of, '.')+1:]) + capitalized(generic)
	}
	return capitalized(name)
}

func capitalized(name string) string { return string(unicode.ToUpper(rune(name[0]))) + name[1:] }

// fields describes a struct. A field is required unless it is omitted when it is empty.
func (b builder) fields(t reflect.Type) Schema {
	properties, required := Schema{}, []string{}
	b.collect(t, properties, &required)
	slices.Sort(required)
	s := Object(required, properties)
	if d := b.Comments[commentKey(t, "")]; d != "" {
		s["description"] = d
	}
	for _, name := range b.embeddedNames(t) {
		maps.Copy(s, b.Types[name])
	}
	return s
}

// collect adds the fields of a struct. Those of an embedded struct are its own; behind a pointer they are optional.
func (b builder) collect(t reflect.Type, properties Schema, required *[]string) {
	for f := range fieldsOf(t) {
		if f.embedded {
			inner, of := required, f.Type
			if of.Kind() == reflect.Pointer {
				inner, of = &[]string{}, of.Elem()
			}
			b.collect(of, properties, inner)
			continue
		}
		properties[f.name] = b.field(t, f)
		if !f.optional {
			*required = append(*required, f.name)
		}
	}
}

// field is the schema of one field with its bounds and its description.
func (b builder) field(of reflect.Type, f field) Schema {
	s := b.bound(b.schema(f.Type), f.Tag.Get("schema"), fmt.Sprintf("%s.%s", of, f.Name))
	if f.Type.Kind() == reflect.Pointer && !f.optional { // always written, and so null at times
		s = OrNull(s)
	}
	if d := b.Comments[commentKey(of, f.Name)]; d != "" {
		s["description"] = d
	}
	return apart(s)
}

// apart moves a reference out of a schema that has more than it. OpenAPI 3.1 allows both in one place, but generators
// of clients drop one or the other.
func apart(s Schema) Schema {
	ref, ok := s["$ref"]
	if !ok || len(s) == 1 {
		return s
	}
	delete(s, "$ref")
	s["allOf"] = []any{Schema{"$ref": ref}}
	return s
}

// OrNull allows null besides.
func OrNull(s Schema) Schema {
	name, ok := s["type"].(string)
	if !ok || s["enum"] != nil {
		return Schema{"anyOf": []any{s, Schema{"type": "null"}}}
	}
	s = maps.Clone(s)
	s["type"] = []any{name, "null"}
	return s
}

// seal says that a body of this type is refused if it, or a part of it, has fields that are not listed. Types that
// only answers have are left open, since a later version may add to them.
func (b builder) seal(v any) {
	b.of(v)
	b.sealType(reflect.TypeOf(v))
}

func (b builder) sealType(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		b.sealType(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if s, named := b.schemas[b.name(t)]; named && b.Special[t] == nil {
		if s["additionalProperties"] == false { // a type may contain itself
			return
		}
		s["additionalProperties"] = false
	}
	for f := range fieldsOf(t) {
		b.sealType(f.Type)
	}
}

// loosen says that a body of this type may have null for a field that may be left out.
func (b builder) loosen(v any) {
	b.of(v)
	t := reflect.TypeOf(v)
	s := b.schemas[b.name(t)]
	required, _ := s["required"].([]string)
	properties := s["properties"].(Schema)
	for name, property := range properties {
		if !slices.Contains(required, name) && !isNullable(property.(Schema)) {
			properties[name] = OrNull(property.(Schema))
		}
	}
}

// isNullable reports whether a schema is one of OrNull.
func isNullable(s Schema) bool {
	kinds, _ := s["type"].([]any)
	return slices.Contains(kinds, any("null")) || s["anyOf"] != nil
}

// embeddedNames are the names of a struct's type and of those that it embeds.
func (b builder) embeddedNames(t reflect.Type) []string {
	list := []string{b.name(t)}
	for f := range fieldsOf(t) {
		if f.embedded && f.Type.Kind() == reflect.Struct {
			list = append(list, b.embeddedNames(f.Type)...)
		}
	}
	return list
}

// A field is a struct's field as JSON has it.
type field struct {
	reflect.StructField
	name               string
	optional, embedded bool
}

// fieldsOf follows encoding/json's rules for names and omission.
func fieldsOf(t reflect.Type) func(func(field) bool) {
	return func(yield func(field) bool) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() && !f.Anonymous {
				continue
			}
			out := field{StructField: f, name: name, optional: strings.Contains(options, "omit"),
				embedded: f.Anonymous && name == ""}
			if out.name == "" {
				out.name = f.Name
			}
			if !yield(out) {
				return
			}
		}
	}
}

// commentKey is where Config.Comments has the description of a type, or of one of its fields. The types that a generic
// type is made for do not count.
func commentKey(t reflect.Type, field string) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return strings.TrimSuffix(t.PkgPath()+"."+name+"."+field, ".")
}

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
//	pattern=^[a-z]+$  text of this form, which has no space
//	or=networkMode    what Config.Named has by this name may stand in place of the field's type
//	deprecated        kept for clients of earlier versions
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
			maps.Copy(s, orZero(json.Number(least), json.Number(most)))
		case name == "enum":
			s["enum"] = strings.Split(value, "|")
		case name == "const", name == "pattern":
			s[name] = value
		case name == "deprecated":
			s["deprecated"] = true
		case name == "or":
			instead = b.named(value, field)
		default:
			maps.Copy(s, b.named(name, field))
		}
	}
	if instead != nil {
		return Schema{"oneOf": []any{instead, apart(s)}}
	}
	return s
}

// orZero allows 0, which stands for the default, and numbers from least to most; "" is no upper bound. It says so
// without alternatives, of which generators of clients make types.
func orZero(least, most json.Number) Schema {
	bounds := Between("0", most)
	bounds["not"] = Schema{"exclusiveMinimum": 0, "exclusiveMaximum": least}
	return bounds
}

// Between allows numbers from least to most; "" is no upper bound.
func Between(least, most json.Number) Schema {
	bounds := Schema{"minimum": least}
	if most != "" {
		bounds["maximum"] = most
	}
	return bounds
}

func (b builder) named(name, field string) Schema {
	s, ok := b.Named[name]
	if !ok {
		panic(fmt.Sprintf("the schema tag of %s names %q, which there is not", field, name))
	}
	return s
}
