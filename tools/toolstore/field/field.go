// Package field checks the fields that stored tools take and return: field lists, and inputs and outputs against them.
//
// A field list is simpler than JSON Schema: six types, and one level of items. JSONSchema translates a list for
// callers that want JSON Schema. tools/toolstore and the edges call this package.
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
	maxFields      = 128
	MaxDescription = 4096 // bytes, of a field
)

var validName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Check checks a list of fields; path is its place in the request.
func Check(path string, fields []proto.ToolField) error {
	if len(fields) > maxFields {
		return proto.Invalid(path, "%s has %d fields; %d is the limit", path, len(fields), maxFields)
	}
	seen := map[string]int{}
	for i, f := range fields {
		at := fmt.Sprintf("%s.%d", path, i)
		switch {
		case !validName.MatchString(f.Name):
			return proto.Invalid(at+".name", "%s.name: %.80q is not a valid field name; use 1 to 64 letters, "+
				"digits, '_', "+
				"'-' and '.'", at, f.Name)
		case len(f.Description) > MaxDescription:
			return proto.Invalid(at+".description", "%s.description has %d bytes; %d is the limit", at,
				len(f.Description),
				MaxDescription)
		case f.ItemsType != "" && f.FieldType != typeArray:
			return proto.Invalid(at+".items_type", "%s.items_type: only a field of type %s has items; leave it out", at,
				typeArray)
		}
		if err := checkType(at+".field_type", f.FieldType); err != nil {
			return err
		}
		if f.ItemsType != "" {
			if err := checkType(at+".items_type", f.ItemsType); err != nil {
				return err
			}
		}
		if first, twice := seen[f.Name]; twice {
			return proto.Invalid(at+".name", "%s.name: the field %q is there already, as %s.%d; leave one of them out",
				at,
				f.Name, path, first)
		}
		seen[f.Name] = i
	}
	return nil
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
		s := map[string]any{"type": strings.ToLower(f.FieldType)} // both sets of names differ in case alone
		if f.Description != "" {
			s["description"] = f.Description
		}
		if f.ItemsType != "" {
			s["items"] = map[string]any{"type": strings.ToLower(f.ItemsType)}
		}
		properties[f.Name] = s
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}
