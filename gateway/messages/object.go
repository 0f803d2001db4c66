// Package rawjson reads and changes JSON objects without decoding the values of their members. The members keep their
// order, and their bytes until they are set. The Messages dialect uses it to pass on what it does not know.
package messages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"berth/proto"

	"github.com/go-json-experiment/json/jsontext"
)

// An object is a JSON object. Its members keep their order, and their bytes until they are set.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// parseObject splits an object into its members. It does not decode their values.
func parseObject(raw []byte) (object, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(
		true))
	if kind := dec.PeekKind(); kind != '{' {
		return nil, invalid("", "a JSON object was expected")
	}
	o := object{}
	if _, err := dec.ReadToken(); err != nil {
		return nil, badJSON(err)
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, badJSON(err)
		}
		m := member{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, badJSON(err)
		}
		m.value = bytes.Clone(value)
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

func badJSON(err error) error { return invalid("", "Invalid JSON: %v.", err) }

// invalid returns the error for a request that is wrong and would fail again.
func invalid(field, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", field, format, args...)
}

// parseArray splits an array into its elements.
func parseArray(raw []byte) (list []json.RawMessage, err error) {
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, badJSON(err)
	}
	return list, nil
}

// get returns a member's value, or nil if there is none.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// has reports whether there is a member and it is not null.
func (o object) has(name string) bool {
	v := o.get(name)
	return v != nil && string(v) != "null"
}

// text returns a string member, or "" if there is none or it is not a string.
func (o object) text(name string) (s string) {
	if json.Unmarshal(o.get(name), &s) != nil {
		return ""
	}
	return s
}

// with returns the object with a member set: at its old place, or at the end if it is new.
func (o object) with(name string, value any) object {
	raw, ok := value.(json.RawMessage)
	if !ok {
		raw = mustJSON(value)
	}
	if raw == nil {
		raw = json.RawMessage("null")
	}
	o = slices.Clone(o)
	for i := range o {
		if o[i].name == name {
			o[i].value = raw
			return o
		}
	}
	return append(o, member{name, raw})
}

// filled returns the object with members of from added where it has none, or only null.
func (o object) filled(from object) object {
	for _, m := range from {
		if !o.has(m.name) {
			o = o.with(m.name, m.value)
		}
	}
	return o
}

// without returns the object without the named members.
func (o object) without(names ...string) object {
	return slices.DeleteFunc(slices.Clone(o), func(m member) bool { return slices.Contains(names, m.name) })
}

// raw returns the object as JSON.
func (o object) raw() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(mustJSON(m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// mustJSON encodes values that cannot fail: strings, numbers, and structures of them.
func mustJSON(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // models read the text
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// joined returns an array of elements that are already JSON.
func joined(list []json.RawMessage) json.RawMessage {
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
