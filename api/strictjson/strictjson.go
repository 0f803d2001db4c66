// Package strictjson decodes the JSON that clients send, and says in a sentence what is wrong with it.
//
// In: the rules for values, and the texts of errors. Out: what the fields mean; their owner checks that. The edges call
// it for bodies, messages and inputs of tools.
package strictjson

import (
	"bytes"
	rawjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"berth/proto"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads the whole body of a request, one JSON value, into v. It refuses with InvalidArgument: unknown and
// repeated fields, wrong case, null, numbers that do not fit, data after the value, text that is not UTF-8, and
// nesting over 10,000 levels. The message names the field and the byte. Decode never rounds or truncates a value.
func Decode(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return DecodeBytes(data, v)
}

// DecodeOptional is Decode for a body that may be left out. Then it leaves v unchanged.
func DecodeOptional(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return err
	}
	return DecodeBytes(data, v)
}

// DecodeBytes is Decode for data from elsewhere, such as a websocket.
func DecodeBytes(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return proto.Invalid("", "The request body is empty; it must be a JSON value.")
	}
	if n, ok := v.(interface{ NullIsAbsent() (depth int) }); ok {
		data = blankNulls(data, n.NullIsAbsent())
	}
	return explain(json.Unmarshal(data, v, json.RejectUnknownMembers(true),
		json.WithUnmarshalers(json.JoinUnmarshalers(requestedLimits, exactValues))))
}

// DecodeBlock is Decode for a block that a model wrote: it ignores unknown fields, and takes null for a field that is
// left out.
func DecodeBlock(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return explain(json.Unmarshal(data, v, json.WithUnmarshalers(requestedLimits)))
}

// explain says what is wrong with JSON.
func explain(err error) error {
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
	return proto.Invalid("", "The request body cannot be read as JSON.")
}

// blankNulls replaces the members of objects that are null by blanks, so that all other bytes keep their places. A type
// asks for it by a method NullIsAbsent, which returns how many levels of objects and arrays this concerns. Data that is
// not JSON stays as it is.
func blankNulls(data []byte, depth int) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	var out []byte // a copy, once there is a null
	nameAt := int64(0)
	for {
		start := d.InputOffset()
		token, err := d.ReadToken()
		if err != nil {
			if errors.Is(err, io.EOF) && out != nil {
				return out
			}
			return data
		}
		kind, n := d.StackIndex(d.StackDepth())
		inObject := kind == '{' && n > 0
		switch {
		case inObject && n%2 == 1:
			nameAt = start
		case inObject && token.Kind() == 'n' && d.StackDepth() <= depth:
			if out == nil {
				out = bytes.Clone(data)
			}
			blankMember(out, int(nameAt), int(d.InputOffset()))
		}
	}
}

// blankMember blanks a member of an object, from the end of what is before its name to the end of its value, and one
// comma beside it.
func blankMember(data []byte, from, to int) {
	for i := from; i < to; i++ {
		data[i] = ' '
	}
	if from > 0 && bytes.HasSuffix(bytes.TrimRight(data[:from], " \t\r\n"), []byte("{")) { // it was the first one
		if rest := bytes.TrimLeft(data[to:], " \t\r\n"); len(rest) > 0 && rest[0] == ',' {
			data[len(data)-len(rest)] = ' '
		}
	}
}

// exactValues makes the decoder strict where JSON and Go differ. Null is refused except in raw values: a client
// leaves out a field that has no value. Integers may be written as 600.0 or 6e2.
var exactValues = json.UnmarshalFromFunc(func(d *jsontext.Decoder, v any) error {
	switch kind := d.PeekKind(); {
	case kind == 'n' && !isRaw(v):
		return &json.SemanticError{GoType: reflect.TypeOf(v).Elem(), JSONKind: kind}
	case kind == '0' && isInteger(reflect.TypeOf(v).Elem().Kind()):
		return decodeWhole(d, reflect.ValueOf(v).Elem())
	case kind == '"':
		if short, ok := v.(shortener); ok {
			return decodeShort(d, short)
		}
	}
	return errors.ErrUnsupported // leave it to the decoder
})

// requestedLimits tells limits of 0 from those that were left out.
var requestedLimits = json.UnmarshalFromFunc(func(d *jsontext.Decoder, l *proto.Limits) (err error) {
	if d.PeekKind() == 'n' {
		return errors.ErrUnsupported // exactValues refuses it
	}
	*l, err = proto.ReadLimits(func(v any) error {
		return json.UnmarshalDecode(d, v, json.WithUnmarshalers(exactValues))
	})
	return err
})

// A shortener is an object that a string may stand for.
type shortener interface{ SetShort(word string) }

// decodeShort reads such a string.
func decodeShort(d *jsontext.Decoder, to shortener) error {
	token, err := d.ReadToken()
	if err == nil {
		to.SetShort(token.String())
	}
	return err
}

func isInteger(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uint64 }

// exactFloat is the limit up to which a float64 holds every integer.
const exactFloat = 1 << 53

// decodeWhole reads an integer in any notation.
func decodeWhole(d *jsontext.Decoder, to reflect.Value) error {
	text, err := d.ReadValue()
	if err != nil {
		return err
	}
	if f, err := strconv.ParseFloat(string(text), 64); err == nil && bytes.ContainsAny(text, ".eE") &&
		f == math.Trunc(f) && math.Abs(f) <= exactFloat {
		text = strconv.AppendInt(nil, int64(f), 10)
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil && to.CanInt() && !to.OverflowInt(n) {
		to.SetInt(n)
		return nil
	}
	if n, err := strconv.ParseUint(string(text), 10, 64); err == nil && to.CanUint() && !to.OverflowUint(n) {
		to.SetUint(n)
		return nil
	}
	return &json.SemanticError{GoType: to.Type(), JSONKind: '0', JSONValue: text.Clone()}
}

func isRaw(v any) bool {
	switch v.(type) {
	case *jsontext.Value, *rawjson.RawMessage, *any:
		return true
	}
	return false
}

func explainSyntax(e *jsontext.SyntacticError) error {
	field := fieldName(e.JSONPointer)
	if errors.Is(e.Err, jsontext.ErrDuplicateName) {
		return proto.Invalid(field, "The field %q is given twice (byte %d).", field, e.ByteOffset)
	}
	return proto.Invalid(field, "Invalid JSON at byte %d: %v.", e.ByteOffset, e.Err)
}

func explainMeaning(e *json.SemanticError) error {
	field := fieldName(e.JSONPointer)
	var own *proto.Error
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return proto.Invalid(field, "Unknown field %q (byte %d).", field, e.ByteOffset)
	case errors.As(e.Err, &own):
		return own
	case field == "":
		return proto.Invalid(field, "The request body must be %s, not %s.", wantedKind(e.GoType), foundValue(e))
	}
	return proto.Invalid(field, "The field %q must be %s, not %s (byte %d).", field, wantedKind(e.GoType),
		foundValue(e), e.ByteOffset)
}

// foundValue describes the value that stands in place of the wanted one.
func foundValue(e *json.SemanticError) string {
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

// longestShownField bounds how much of a field name a message repeats, in bytes.
const longestShownField = 200

// fieldName writes a JSON pointer with dots: limits.cpus, files.2.
func fieldName(p jsontext.Pointer) string {
	name := strings.Join(slices.Collect(p.Tokens()), ".")
	if len(name) > longestShownField {
		name = strings.ToValidUTF8(name[:longestShownField], "") + "…"
	}
	return name
}

// wantedKind describes the JSON that a Go type accepts.
func wantedKind(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return wantedKind(t.Elem())
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
