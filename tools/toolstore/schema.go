package toolstore

import (
	"fmt"
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

// FieldTypes lists all types of fields.
var FieldTypes = []string{typeString, typeInteger, typeNumber, typeBoolean, typeArray, typeObject}

// Bounds of a schema.
const (
	maxFields      = 128
	maxFieldName   = 64   // bytes
	maxDescription = 4096 // bytes, of a field and of a tool
)

// checkSchema checks a list of fields; path is its place in the request.
func checkSchema(path string, fields []Field) error {
	if len(fields) > maxFields {
		return invalid(path, "%s has %d fields; %d is the limit", path, len(fields), maxFields)
	}
	seen := map[string]int{}
	for i, f := range fields {
		at := fmt.Sprintf("%s.%d", path, i)
		if err := checkField(f, at); err != nil {
			return err
		}
		if first, twice := seen[f.Name]; twice {
			return invalid(at+".name", "%s.name: the field %q is there already, as %s.%d; leave one of them out", at,
				f.Name, path, first)
		}
		seen[f.Name] = i
	}
	return nil
}

func checkField(f Field, at string) error {
	switch {
	case !validName(f.Name, "_-.", maxFieldName):
		return invalid(at+".name",
			"%s.name: %.80q is not a valid field name; use 1 to %d letters, digits, '_', '-' and '.'",
			at, f.Name, maxFieldName)
	case len(f.Description) > maxDescription:
		return invalid(at+".description", "%s.description has %d bytes; %d is the limit", at, len(f.Description),
			maxDescription)
	case f.ItemsType != "" && f.FieldType != typeArray:
		return invalid(at+".items_type", "%s.items_type: only a field of type %s has items; leave it out", at,
			typeArray)
	}
	if err := checkType(at+".field_type", f.FieldType); err != nil {
		return err
	}
	if f.ItemsType == "" {
		return nil
	}
	return checkType(at+".items_type", f.ItemsType)
}

// checkType refuses unknown types, and names the right one if only the case is wrong.
func checkType(at, name string) error {
	if slices.Contains(FieldTypes, name) {
		return nil
	}
	if upper := strings.ToUpper(name); slices.Contains(FieldTypes, upper) {
		return invalid(at, "%s: %q is not a type; types are upper case, so write %q", at, name, upper)
	}
	return invalid(at, "%s: %.40q is not a type; use one of %s", at, name, strings.Join(FieldTypes, ", "))
}

// validName allows letters, digits and the bytes in extra, up to most of them.
func validName(name, extra string, most int) bool {
	for _, c := range []byte(name) {
		if !alnum(c) && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return name != "" && len(name) <= most
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

func invalid(item, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", item, format, args...)
}
