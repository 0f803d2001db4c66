package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"berth/proto"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads a request's whole body, one JSON value, into v. Unknown and repeated fields, wrong
// case, data after the value, text that is not UTF-8 and nesting over 10,000 levels are refused with
// InvalidArgument; the message names the field and the byte.
func Decode(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return DecodeBytes(data, v)
}

// DecodeBytes is Decode for what arrived in another way, such as a websocket.
func DecodeBytes(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return invalidJSON("", "The request body is empty; it must be a JSON value.")
	}
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true))
	var syntax *jsontext.SyntacticError
	var meaning *json.SemanticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &meaning):
		return explainMeaning(meaning)
	case errors.As(err, &syntax):
		return explainSyntax(syntax)
	}
	return invalidJSON("", "The request body cannot be read as JSON.")
}

func explainSyntax(e *jsontext.SyntacticError) error {
	field := fieldName(e.JSONPointer)
	if errors.Is(e.Err, jsontext.ErrDuplicateName) {
		return invalidJSON(field, "The field %q is given twice (byte %d).", field, e.ByteOffset)
	}
	return invalidJSON(field, "Invalid JSON at byte %d: %v.", e.ByteOffset, e.Err)
}

func explainMeaning(e *json.SemanticError) error {
	field := fieldName(e.JSONPointer)
	var own *proto.Error
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return invalidJSON(field, "Unknown field %q (byte %d).", field, e.ByteOffset)
	case errors.As(e.Err, &own):
		return own
	case field == "":
		return invalidJSON(field, "The request body must be %s, not %s.", kindName(e.GoType), found(e))
	}
	return invalidJSON(field, "The field %q must be %s, not %s (byte %d).", field, kindName(e.GoType), found(e), e.ByteOffset)
}

// found describes what stands where something else should.
func found(e *json.SemanticError) string {
	if e.JSONKind == '0' && len(e.JSONValue) > 0 && len(e.JSONValue) < 40 {
		return string(e.JSONValue) // a number that is too large, or not whole
	}
	switch e.JSONKind {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	}
	return e.JSONKind.String() // null, true, false
}

// longestShownField bounds what a message repeats of the client's words.
const longestShownField = 200

// fieldName writes a JSON pointer as people write fields: limits.cpus, files.2.
func fieldName(p jsontext.Pointer) string {
	name := strings.Join(tokens(p), ".")
	if len(name) > longestShownField {
		name = strings.ToValidUTF8(name[:longestShownField], "") + "…"
	}
	return name
}

func tokens(p jsontext.Pointer) (list []string) {
	for token := range p.Tokens() {
		list = append(list, token)
	}
	return list
}

// kindName says what JSON a Go type wants.
func kindName(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<(t.Bits()-1)-1+uint64(1)<<(t.Bits()-1))
	}
	return "something else"
}

func invalidJSON(field, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", field, format, args...)
}
