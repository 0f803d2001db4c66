package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// FuzzKnown compares how values are split without looking at each byte with what a decoder makes of them.
func FuzzKnown(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, ` { "a" : 1 , "b\"" : [ {"c":"}"} , "\\" ] , "d":"\\\"" } `, `["\\\\","]",[],{},null,-1e5,true]`,
		`{"type":"text","text":"a\u0041\"b"}`, `{"\u0074ype":"x","type":"y"}`, `[`, `{"a":`, `{"a"`, `"`, ``, `[1,,]`, `{"a" 1}`,
		"{\"a\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, isObject := Known(data)
		list, isArray := Elements(data)
		if !json.Valid(data) {
			return // it must only end, and touch nothing outside
		}
		var wantList []json.RawMessage
		if json.Unmarshal(data, &wantList) == nil && bytes.TrimSpace(data)[0] == '[' {
			if !isArray || !slices.EqualFunc(list, wantList, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
				t.Fatalf("%s: %q, want %q", data, list, wantList)
			}
		} else if isArray {
			t.Fatalf("%s is no array", data)
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || bytes.TrimSpace(data)[0] != '{' {
			if isObject {
				t.Fatalf("%s is no object", data)
			}
			return
		}
		got := map[string]json.RawMessage{}
		for _, m := range o {
			got[m.Name] = m.Value // the last one wins, as in a map
		}
		if !isObject || len(got) != len(want) {
			t.Fatalf("%s: %q, want %q", data, got, want)
		}
		for name, value := range want {
			if !bytes.Equal(got[name], value) || !bytes.Equal(Member(data, name), o.Get(name)) {
				t.Fatalf("%s: %q is %q and %q, want %q", data, name, got[name], Member(data, name), value)
			}
			var text string
			if json.Unmarshal(value, &text) != nil {
				text = ""
			}
			if Text(value) != text {
				t.Fatalf("%s: %q, want %q", value, Text(value), text)
			}
		}
		if !json.Valid(o.Raw()) {
			t.Fatalf("%s: no JSON: %s", data, o.Raw())
		}
	})
}
