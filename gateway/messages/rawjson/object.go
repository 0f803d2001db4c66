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
func Parse(raw []byte) (o Object, err error) {
	if i := skipSpace(raw, 0); i >= len(raw) || raw[i] != '{' {
		return nil, proto.Invalid("", "a JSON object was expected")
	}
	dec := newDecoder(raw)
	o = Object{}
	_, err = dec.ReadToken()
	for err == nil && dec.PeekKind() == '"' {
		var name, value jsontext.Value
		if name, err = dec.ReadValue(); err != nil {
			break
		}
		text := textOf(name)
		if value, err = dec.ReadValue(); err == nil {
			end := int(dec.InputOffset())
			o = append(o, member{text, raw[end-len(value) : end : end]})
		}
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	if err == nil {
		err = checkEnd(dec, raw)
	}
	if err != nil {
		return nil, badJSON(err)
	}
	return o, nil
}

// newDecoder returns a decoder that reads a text without copying it.
func newDecoder(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
}

// check returns an error unless a text is one JSON value.
func check(raw []byte) error {
	dec := newDecoder(raw)
	_, err := dec.ReadValue()
	if err == nil {
		err = checkEnd(dec, raw)
	}
	if err != nil {
		return badJSON(err)
	}
	return nil
}

// checkEnd returns an error if anything follows the value that was read.
func checkEnd(dec *jsontext.Decoder, raw []byte) error {
	if rest := bytes.TrimSpace(raw[dec.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("%.20q follows its end", rest)
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

// Raw returns the object as JSON.
func (o Object) Raw() json.RawMessage {
	raw, _ := o.Around("")
	return raw
}

// Around returns the object as JSON in two pieces, without the value of a member that is between them. If there is no
// such member, the first piece is the whole object.
func (o Object) Around(name string) (before, after json.RawMessage) {
	size := 2
	for _, m := range o {
		size += len(m.Name) + len(m.Value) + 4
	}
	b, cut := append(make([]byte, 0, size), '{'), -1
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(AppendText(b, m.Name), ':')
		if name != "" && m.Name == name && cut < 0 {
			cut = len(b)
		} else {
			b = append(b, m.Value...)
		}
	}
	if b = append(b, '}'); cut < 0 {
		return b, nil
	}
	return b[:cut:cut], b[cut:]
}

// AppendText appends a string as JSON.
func AppendText(b []byte, text string) []byte {
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
