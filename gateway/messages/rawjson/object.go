// Package rawjson reads and changes JSON objects without decoding the values of their members. The members keep their
// order, and their bytes until they are set. The Messages dialect uses it to pass on what it does not know.
package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"berth/proto"

	"github.com/go-json-experiment/json/jsontext"
)

// An Object is a JSON object. Its members keep their order, and their bytes until they are set.
type Object []member

type member struct {
	Name  string
	Value json.RawMessage
}

// Parse splits an object into its members. It does not decode their values.
func Parse(raw []byte) (Object, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(
		true))
	if kind := dec.PeekKind(); kind != '{' {
		return nil, proto.Invalid("", "a JSON object was expected")
	}
	o := Object{}
	if _, err := dec.ReadToken(); err != nil {
		return nil, badJSON(err)
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, badJSON(err)
		}
		m := member{Name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, badJSON(err)
		}
		m.Value = bytes.Clone(value)
		o = append(o, m)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, badJSON(err)
	}
	if rest := bytes.TrimSpace(raw[dec.InputOffset():]); len(rest) > 0 {
		return nil, badJSON(fmt.Errorf("%.20q follows its end", rest))
	}
	return o, nil
}

func badJSON(err error) error { return proto.Invalid("", "Invalid JSON: %v.", err) }

// ParseArray splits an array into its elements.
func ParseArray(raw []byte) (list []json.RawMessage, err error) {
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, badJSON(err)
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
func (o Object) Text(name string) (s string) {
	if json.Unmarshal(o.Get(name), &s) != nil {
		return ""
	}
	return s
}

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
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(Marshal(m.Name))
		b.WriteByte(':')
		b.Write(m.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// Marshal encodes values that cannot fail: strings, numbers, and structures of them.
func Marshal(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // models read the text
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Join returns an array of elements that are already JSON.
func Join(list []json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(v)
	}
	b.WriteByte(']')
	return b.Bytes()
}
