// Package rawjson reads and changes JSON objects without decoding the values of their members. The members keep their
// order, and their bytes until they are set. The Messages dialect uses it to pass on what it does not know.
package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"berth/proto"

	"github.com/go-json-experiment/json/jsontext"
)

// An Object is a JSON object. Its members keep their order, and their bytes until they are set.
type Object []member

type member struct {
	Name  string
	Value json.RawMessage
}

// Parse checks that a text is an object, and splits it into its members. Their values are parts of the text. They are
// known to be valid.
func Parse(raw []byte) (Object, error) {
	if i := skipSpace(raw, 0); i >= len(raw) || raw[i] != '{' {
		return nil, proto.Invalid("", "a JSON object was expected")
	}
	if err := check(raw); err != nil {
		return nil, err
	}
	o, _ := Known(raw)
	return o, nil
}

// check returns an error unless a text is one JSON value.
func check(raw []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(
		true))
	if _, err := dec.ReadValue(); err != nil {
		return badJSON(err)
	}
	if rest := bytes.TrimSpace(raw[dec.InputOffset():]); len(rest) > 0 {
		return badJSON(fmt.Errorf("%.20q follows its end", rest))
	}
	return nil
}

func badJSON(err error) error { return proto.Invalid("", "Invalid JSON: %v.", err) }

// ParseArray checks that a text is an array, and splits it into its elements. null has none. They are parts of the
// text.
func ParseArray(raw []byte) (list []json.RawMessage, err error) {
	if err := check(raw); err != nil {
		return nil, err
	}
	if string(bytes.TrimSpace(raw)) == "null" {
		return nil, nil
	}
	list, ok := Elements(raw)
	if !ok {
		return nil, proto.Invalid("", "a JSON array was expected")
	}
	return list, nil
}

// Get returns a member's value, or nil if there is none.
func (o Object) Get(name string) json.RawMessage {
	for _, m := range o {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// Has reports whether there is a member and it is not null.
func (o Object) Has(name string) bool {
	v := o.Get(name)
	return v != nil && string(v) != "null"
}

// Text returns a string member, or "" if there is none or it is not a string.
func (o Object) Text(name string) (s string) { return textOf(o.Get(name)) }

// Text returns the text of a value that is a string, or "".
func Text(raw json.RawMessage) string { return textOf(raw) }

// With returns the object with a member set: at its old place, or at the end if it is new.
func (o Object) With(name string, value any) Object {
	raw, ok := value.(json.RawMessage)
	if !ok {
		raw = Marshal(value)
	}
	if raw == nil {
		raw = json.RawMessage("null")
	}
	o = slices.Clone(o)
	for i := range o {
		if o[i].Name == name {
			o[i].Value = raw
			return o
		}
	}
	return append(o, member{name, raw})
}

// Filled returns the object with members of from added where it has none, or only null.
func (o Object) Filled(from Object) Object {
	for _, m := range from {
		if !o.Has(m.Name) {
			o = o.With(m.Name, m.Value)
		}
	}
	return o
}

// Without returns the object without the named members.
func (o Object) Without(names ...string) Object {
	return slices.DeleteFunc(slices.Clone(o), func(m member) bool { return slices.Contains(names, m.Name) })
}

// A Writer is a value that is written into a text of which the size is known before.
type Writer interface {
	Size() int // bytes that AppendTo appends at most
	AppendTo(b []byte) []byte
}

// Raw returns the object as JSON.
func (o Object) Raw() json.RawMessage { return o.RawWith("", nil) }

// RawWith returns the object as JSON, with the value of one of its members written by w.
func (o Object) RawWith(name string, w Writer) json.RawMessage {
	size := 2
	for _, m := range o {
		size += len(m.Name) + len(m.Value) + 4
	}
	if w != nil {
		size += w.Size()
	}
	return o.AppendWith(make([]byte, 0, size), name, w)
}

// AppendWith appends the object as JSON, with the value of one of its members written by w.
func (o Object) AppendWith(b []byte, name string, w Writer) []byte {
	b = append(b, '{')
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, m.Name), ':')
		if w != nil && m.Name == name {
			b = w.AppendTo(b)
		} else {
			b = append(b, m.Value...)
		}
	}
	return append(b, '}')
}

// appendText appends a string as JSON.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return append(b, Marshal(text)...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// Marshal encodes values that cannot fail: strings, numbers, and structures of them.
func Marshal(v any) json.RawMessage {
	if text, ok := v.(string); ok { // models read the text, so it has no needless escapes
		raw, _ := jsontext.AppendQuote(make([]byte, 0, len(text)+len(text)/16+2), text) // invalid UTF-8 is replaced
		return raw
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Join returns an array of elements that are already JSON.
func Join(list []json.RawMessage) json.RawMessage {
	size := 2
	for _, v := range list {
		size += len(v) + 1
	}
	b := append(make([]byte, 0, size), '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
