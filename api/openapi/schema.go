package openapi

import (
	"cmp"
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
func (b builder) of(v any) Schema { return b.schema(reflect.TypeOf(v)) }

func (b builder) schema(t reflect.Type) Schema {
	if s, ok := b.Special[t]; ok {
		return maps.Clone(s) // bounds are written into it
	}
	if values, ok := b.Enums[t]; ok {
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
	if name == "" || strings.ContainsRune(name, '[') {
		return b.fields(t)
	}
	if _, known := b.schemas[name]; !known {
		b.schemas[name] = nil // it may refer to itself
		b.schemas[name] = b.fields(t)
	}
	return Schema{"$ref": "#/components/schemas/" + name}
}

// name is what the document calls a type. Types that are not exported have a name like the others.
func (b builder) name(t reflect.Type) string {
	name := cmp.Or(b.Names[t], t.Name())
	if name == "" {
		return ""
	}
	return string(unicode.ToUpper(rune(name[0]))) + name[1:]
}

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
		s = Schema{"anyOf": []any{s, Schema{"type": "null"}}}
	}
	if d := b.Comments[commentKey(of, f.Name)]; d != "" {
		s["description"] = d
	}
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
		s["additionalProperties"] = false
	}
	for f := range fieldsOf(t) {
		b.sealType(f.Type)
	}
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
			if name == "-" || !f.IsExported() {
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

// commentKey is where Config.Comments has the description of a type, or of one of its fields.
func commentKey(t reflect.Type, field string) string {
	return strings.TrimSuffix(t.PkgPath()+"."+t.Name()+"."+field, ".")
}
