// Package field checks the fields that stored tools take and return: field lists, and inputs and outputs against them.
//
// A field list is simpler than JSON Schema: six types, with fields of objects, items of arrays and some bounds. A
// bound that does not concern the type of its field has no effect. JSONSchema translates a list for callers that want
// JSON Schema. tools/toolstore and the edges call this package.
package field

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth/proto"
)

// The types of fields. They are upper case and have no other spelling.
const (
	typeString  = "STRING"
	typeInteger = "INTEGER"
	typeNumber  = "NUMBER"
	typeBoolean = "BOOLEAN"
	typeArray   = "ARRAY"
	typeObject  = "OBJECT"
)

// Types lists all types of fields.
var Types = []string{typeString, typeInteger, typeNumber, typeBoolean, typeArray, typeObject}

// Bounds of a field list.
const (
	maxFields      = 128 // of one object
	maxAllFields   = 512 // with those in objects and arrays
	maxSchemaDepth = 16
	maxEnum        = 256
	MaxDescription = 4096 // bytes, of a field
)

var validName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Check checks a list of fields; path is its place in the request.
func Check(path string, fields []proto.ToolField) error {
	count := 0
	return checkList(path, fields, 0, &count)
}

// checkList checks the fields of one object. count is the number of all fields so far, depth that of the objects around
// them.
func checkList(path string, fields []proto.ToolField, depth int, count *int) error {
	if len(fields) > maxFields {
		return proto.Invalid(path, "%s has %d fields; %d is the limit", path, len(fields), maxFields)
	}
	seen := map[string]int{}
	for i, f := range fields {
		at := fmt.Sprintf("%s.%d", path, i)
		if !validName.MatchString(f.Name) {
			return proto.Invalid(at+".name", "%s.name: %.80q is not a valid field name; use 1 to 64 letters, "+
				"digits, '_', '-' and '.'", at, f.Name)
		}
		if err := checkField(at, f, depth, count); err != nil {
			return err
		}
		if first, twice := seen[f.Name]; twice {
			return proto.Invalid(at+".name", "%s.name: the field %q is there already, as %s.%d; leave one of them out",
				at, f.Name, path, first)
		}
		seen[f.Name] = i
	}
	return nil
}

// checkField checks one field, and those in it.
func checkField(at string, f proto.ToolField, depth int, count *int) error {
	if *count++; *count > maxAllFields || depth > maxSchemaDepth {
		return proto.Invalid(at, "%s: a schema has at most %d fields, and they are nested at most %d deep", at,
			maxAllFields, maxSchemaDepth)
	}
	switch {
	case len(f.Description) > MaxDescription:
		return proto.Invalid(at+".description", "%s.description has %d bytes; %d is the limit", at,
			len(f.Description), MaxDescription)
	case f.ItemsType != "" && f.FieldType != typeArray:
		return proto.Invalid(at+".items_type", "%s.items_type: only a field of type %s has items; leave it out", at,
			typeArray)
	case f.ItemsSchema != nil && f.FieldType != typeArray:
		return proto.Invalid(at+".items_schema", "%s.items_schema: only a field of type %s has items; leave it out", at,
			typeArray)
	case len(f.Properties) > 0 && f.FieldType != typeObject:
		return proto.Invalid(at+".properties", "%s.properties: only a field of type %s has properties; leave them out",
			at, typeObject)
	case f.Minimum != nil && f.Maximum != nil && *f.Minimum > *f.Maximum:
		return proto.Invalid(at+".maximum", "%s.maximum is less than its minimum", at)
	case f.MinItems != nil && f.MaxItems != nil && *f.MinItems > *f.MaxItems:
		return proto.Invalid(at+".max_items", "%s.max_items is less than its min_items", at)
	case len(f.EnumValues) > maxEnum:
		return proto.Invalid(at+".enum_values", "%s.enum_values has %d values; %d is the limit", at, len(f.EnumValues),
			maxEnum)
	}
	if err := checkType(at+".field_type", f.FieldType); err != nil {
		return err
	}
	if f.ItemsType != "" {
		if err := checkType(at+".items_type", f.ItemsType); err != nil {
			return err
		}
	}
	if f.ItemsSchema != nil {
		if f.ItemsType != "" && f.ItemsType != f.ItemsSchema.FieldType {
			return proto.Invalid(at+".items_type", "%s.items_type differs from the field_type of items_schema; leave "+
				"it out", at)
		}
		if err := checkField(at+".items_schema", *f.ItemsSchema, depth+1, count); err != nil {
			return err
		}
	}
	return checkList(at+".properties", f.Properties, depth+1, count)
}

// checkType refuses unknown types, and names the right one if only the case is wrong.
func checkType(at, name string) error {
	if slices.Contains(Types, name) {
		return nil
	}
	if upper := strings.ToUpper(name); slices.Contains(Types, upper) {
		return proto.Invalid(at, "%s: %q is not a type; types are upper case, so write %q", at, name, upper)
	}
	return proto.Invalid(at, "%s: %.40q is not a type; use one of %s", at, name, strings.Join(Types, ", "))
}

// JSONSchema returns a list of fields as JSON Schema (2020-12). The schema allows additional fields: an input drops
// them, and an output may have them.
func JSONSchema(list []proto.ToolField) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range list {
		properties[f.Name] = fieldSchema(f)
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// fieldSchema returns one field as JSON Schema.
func fieldSchema(f proto.ToolField) map[string]any {
	s := map[string]any{}
	if len(f.Properties) > 0 {
		s = JSONSchema(f.Properties)
	}
	s["type"] = strings.ToLower(f.FieldType) // both sets of names differ in case alone
	switch {
	case f.ItemsSchema != nil:
		s["items"] = fieldSchema(*f.ItemsSchema)
	case f.ItemsType != "":
		s["items"] = map[string]any{"type": strings.ToLower(f.ItemsType)}
	}
	for key, text := range map[string]string{"title": f.Title, "description": f.Description, "format": f.Format} {
		if text != "" {
			s[key] = text
		}
	}
	if len(f.EnumValues) > 0 {
		s["enum"] = f.EnumValues
	}
	for key, bound := range map[string]*float64{"minimum": f.Minimum, "maximum": f.Maximum} {
		if bound != nil {
			s[key] = *bound
		}
	}
	for key, bound := range map[string]*int64{"minItems": f.MinItems, "maxItems": f.MaxItems} {
		if bound != nil {
			s[key] = *bound
		}
	}
	return s
}
