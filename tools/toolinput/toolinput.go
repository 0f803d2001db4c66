// Package toolinput decodes the input of built-in tools as models write it. It takes a value where its meaning is
// plain: null is as good as left out, "2" is a number, "[1, 3]" a list, "false" a truth value. Errors are in words
// that a model can act on.
//
// In: objects, and the rules for values. Out: what the fields mean, which their tool checks. tools/tooluse, api/mcp and
// gateway/containers call it. Requests of programs are decoded by api/strictjson, and inputs of stored tools by
// tools/toolstore/field; both are stricter.
package toolinput

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"berth/proto"

	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads an input into the struct that v points to. Fields have the names of their JSON tags. The tag says:"…"
// describes the values of a field in errors. Unknown arguments are ignored, since models add some now and then. An
// error is of the code InvalidArgument and its item is the argument.
func Decode(input json.RawMessage, v any) error {
	return decode(input, v, false)
}

// DecodeKnown is Decode, but refuses unknown arguments: a misspelt one would have no effect.
func DecodeKnown(input json.RawMessage, v any) error {
	return decode(input, v, true)
}

func decode(input json.RawMessage, v any, known bool) error {
	args, err := arguments(input)
	if err != nil {
		return err
	}
	fields := map[string]field{}
	collect(fields, reflect.ValueOf(v).Elem())
	for _, arg := range args {
		f, ok := fields[arg.name]
		switch {
		case arg.value.Kind() == 'n':
		case ok:
			if !f.set(arg.value) {
				return proto.Invalid(arg.name, "%s must be %s, not %s", arg.name, f.says, found(arg.value))
			}
		case known:
			return proto.Invalid(proto.Shorten(arg.name, 100), "argument %.100q is unknown; the tool has %s", arg.name,
				strings.Join(names(fields), ", "))
		}
	}
	return nil
}

// An argument is one member of an input.
type argument struct {
	name  string
	value jsontext.Value
}

// arguments splits an input. One that is left out has none, and one that is quoted is read nevertheless.
func arguments(input json.RawMessage) (args []argument, err error) {
	raw := bytes.TrimSpace(input)
	var quoted string
	if json.Unmarshal(raw, &quoted) == nil && (quoted == "" || quoted[0] == '{') {
		raw = []byte(quoted)
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] != '{' {
		return nil, proto.Invalid("input", "the input must be an object with the arguments of the tool, not %s",
			found(raw))
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	_, err = d.ReadToken()
	for err == nil && d.PeekKind() == '"' {
		var name jsontext.Token
		if name, err = d.ReadToken(); err != nil {
			break
		}
		arg := argument{name: name.String()}
		if arg.value, err = d.ReadValue(); err == nil {
			arg.value = arg.value.Clone()
			args = append(args, arg)
		}
	}
	if err == nil {
		_, err = d.ReadToken() // the end of the object
	}
	if err != nil {
		return nil, proto.Invalid("input", "the input is not valid JSON at byte %d", d.InputOffset())
	}
	return args, nil
}

// A field is where an argument goes.
type field struct {
	at   reflect.Value
	says string // its values in words
}

// collect finds the fields of a struct, and of the structs that it embeds.
func collect(fields map[string]field, s reflect.Value) {
	for i := range s.NumField() {
		f := s.Type().Field(i)
		if f.Anonymous {
			collect(fields, s.Field(i))
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		says := f.Tag.Get("says")
		if says == "" {
			says = kindOf(f.Type)
		}
		if name != "" && name != "-" {
			fields[name] = field{s.Field(i), says}
		}
	}
}

// names lists the arguments of a tool.
func names(fields map[string]field) []string {
	var out []string
	for name := range fields {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// kindOf describes the values of a type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Slice:
		return "a list, each item " + kindOf(t.Elem())
	}
	return "a string"
}

// set sets the field, unless the value does not fit.
func (f field) set(value jsontext.Value) bool {
	v := reflect.New(f.at.Type()).Elem()
	ok := assign(v, value)
	if ok {
		f.at.Set(v)
	}
	return ok
}

// assign converts a value. A string stands for what it holds, and an empty one for nothing.
func assign(to reflect.Value, value jsontext.Value) bool {
	var s string
	quoted := value.Kind() == '"' && json.Unmarshal(value, &s) == nil
	if quoted {
		s = strings.TrimSpace(s)
	}
	switch kind := to.Kind(); {
	case kind == reflect.Pointer:
		if quoted && s == "" && to.Type().Elem().Kind() != reflect.String {
			return true
		}
		to.Set(reflect.New(to.Type().Elem()))
		return assign(to.Elem(), value)
	case kind == reflect.String:
		var text string
		if value.Kind() != '"' || json.Unmarshal(value, &text) != nil {
			return false
		}
		to.SetString(text)
		return true
	case quoted && s == "":
		return true
	case kind == reflect.Slice:
		return assignList(to, value, s)
	case kind == reflect.Bool:
		b, ok := truth(value, s)
		to.SetBool(b)
		return ok
	}
	n, ok := number(value, s)
	switch {
	case !ok:
		return false
	case to.CanFloat():
		to.SetFloat(n)
		return true
	case n != math.Trunc(n) || math.Abs(n) > 1<<53 || to.OverflowInt(int64(n)):
		return false
	}
	to.SetInt(int64(n))
	return true
}

// truth reads true, "True" or 1.
func truth(value jsontext.Value, s string) (b, ok bool) {
	word := string(value)
	if value.Kind() == '"' {
		word = strings.ToLower(s)
	}
	switch word {
	case "true", "1":
		return true, true
	case "false", "0":
		return false, true
	}
	return false, false
}

var numeral = regexp.MustCompile(`^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$`)

// number reads 2 or "2".
func number(value jsontext.Value, s string) (n float64, ok bool) {
	text := string(value)
	if value.Kind() == '"' {
		text = s
	}
	if !numeral.MatchString(text) {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// assignList reads [1, 3], "[1, 3]" or "1, 3"; for strings also a single one.
func assignList(to reflect.Value, value jsontext.Value, s string) bool {
	var items []jsontext.Value
	text := []byte(value)
	if value.Kind() == '"' {
		text = []byte(s)
		if ofStrings := to.Type().Elem().Kind() == reflect.String; !strings.HasPrefix(s, "[") && ofStrings {
			text = slices.Concat([]byte("["), value, []byte("]"))
		} else if !strings.HasPrefix(s, "[") {
			text = fmt.Appendf(nil, "[%s]", s)
		}
	}
	if text[0] != '[' || json.Unmarshal(text, &items) != nil {
		return false
	}
	list := reflect.MakeSlice(to.Type(), len(items), len(items))
	for i, item := range items {
		if item.Kind() == 'n' || string(item) == `""` || !assign(list.Index(i), item) {
			return false
		}
	}
	to.Set(list)
	return true
}

// found describes a value that does not fit.
func found(value jsontext.Value) string {
	switch value.Kind() {
	case '{':
		return "an object"
	case '"':
		return "the string " + proto.Shorten(string(value), 60)
	case '[':
		return "the list " + proto.Shorten(string(value), 60)
	case '0':
		return "the number " + proto.Shorten(string(value), 60)
	}
	return proto.Shorten(string(value), 60) // true, false or null
}
