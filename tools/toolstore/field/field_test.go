package field

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"berth/proto"
)

func TestSchemasAreChecked(t *testing.T) {
	many := make([]proto.ToolField, maxFields+1)
	for i := range many {
		many[i] = proto.ToolField{Name: strings.Repeat("f", 1+i%60) + string(rune('a'+i/60)), FieldType: "STRING"}
	}
	for want, fields := range map[string][]proto.ToolField{
		`s.0.field_type: "string" is not a type; types are upper case, so write "STRING"`: {
			{Name: "a", FieldType: "string"}},
		`s.1.field_type: "Integer" is not a type; types are upper case`: {
			{Name: "a", FieldType: "STRING"}, {Name: "b", FieldType: "Integer"}},
		`s.0.field_type: "" is not a type; use one of STRING, INTEGER`: {{Name: "a"}},
		`s.0.field_type: "DATE" is not a type`: {
			{Name: "a", FieldType: "DATE"}},
		`s.0.items_type: "string" is not a type; types are upper case`: {
			{Name: "a", FieldType: "ARRAY", ItemsType: "string"}},
		`s.0.items_type: only a field of type ARRAY has items`: {
			{Name: "a", FieldType: "OBJECT", ItemsType: "STRING"}},
		`s.0.name: "" is not a valid field name`: {{FieldType: "STRING"}},
		`s.0.name: "a b" is not a valid field name`: {
			{Name: "a b", FieldType: "STRING"}},
		`s.1.name: the field "a" is there already, as s.0`: {
			{Name: "a", FieldType: "STRING"}, {Name: "a", FieldType: "NUMBER"}},
		`s has 129 fields; 128 is the limit`: many,
	} {
		if err := Check("s", fields); proto.CodeOf(err) != proto.InvalidArgument ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, kind := range Types {
		if err := Check("s", []proto.ToolField{{Name: "a-b_c.D9", FieldType: kind}, {Name: "list", FieldType: "ARRAY",
			ItemsType: kind}}); err != nil {
			t.Error(err)
		}
	}
}

var typedFields = []proto.ToolField{
	{Name: "s", FieldType: "STRING"}, {Name: "i", FieldType: "INTEGER"}, {Name: "n", FieldType: "NUMBER"},
	{Name: "b", FieldType: "BOOLEAN"},
	{Name: "a", FieldType: "ARRAY"}, {Name: "o", FieldType: "OBJECT"}, {Name: "l", FieldType: "ARRAY",
		ItemsType: "INTEGER"}, {Name: "must", FieldType: "STRING", Required: true},
}

func TestInputIsCheckedAndFiltered(t *testing.T) {
	for in, want := range map[string]string{
		`{"must":"x"}`:                                       `{"must":"x"}`,
		`{"must":"x","s":"","i":-0,"n":1e3}`:                 `{"i":-0,"must":"x","n":1e3,"s":""}`,
		`{"must":"x","i":2.0,"l":[1,2e1]}`:                   `{"i":2,"l":[1,20],"must":"x"}`,
		`{"must":"x","i":123456789012345678901}`:             `{"i":123456789012345678901,"must":"x"}`,
		`{"must":"x","a":[1,"a",null],"o":{"z":[{}]},"x":1}`: `{"a":[1,"a",null],"must":"x","o":{"z":[{}]}}`,
		`{"must":"x","s":null}`:                              `{"must":"x"}`,
	} {
		v, _, err := Input(typedFields, []byte(in))
		if got, _ := Encode(v); err != nil || string(got) != want {
			t.Errorf("%s: %s %v", in, got, err)
		}
	}
	for in, item := range map[string]string{
		``: "input.must", `{}`: "input.must", `{"must":null}`: "input.must", `{"must":1}`: "input.must", `[]`: "input",
		`{"must":"x","must":"y"}`: "input", `{"must":"x"}x`: "input",
		`{"must":"x","i":1.5}`: "input.i", `{"must":"x","i":"1"}`: "input.i", `{"must":"x","i":true}`: "input.i",
		`{"must":"x","i":1e300}`: "input.i",
		`{"must":"x","b":0}`:     "input.b", `{"must":"x","b":"true"}`: "input.b", `{"must":"x","n":"1"}`: "input.n",
		`{"must":"x","n":1e999}`: "input.n",
		`{"must":"x","a":{}}`:    "input.a", `{"must":"x","o":[]}`: "input.o",
		`{"must":"x","l":[1,2,"3"]}`: "input.l.2",
		`{"must":"x","l":[null]}`:    "input.l.0",
		"{\"must\":\"\xff\"}":        "input", `{"must":"x","o":` + strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat(
			"}", 71): "input.o" + strings.Repeat(".a", 64),
	} {
		if _, _, err := Input(typedFields, []byte(in)); proto.CodeOf(err) != proto.InvalidArgument ||
			proto.AsError(err).Item != item {
			t.Errorf("%s: %v (%s), want one about %s", in, err, proto.AsError(err).Item, item)
		}
	}
}

// FuzzInput checks that an accepted input fits the schema, and does not change when it is checked again.
func FuzzInput(f *testing.F) {
	f.Add([]byte(`{"must":"x","i":2.0,"l":[1,2e1],"o":{"a":[null]},"b":true,"z":1}`))
	f.Add([]byte(`{"must":"x","n":1e999}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, dropped, err := Input(typedFields, raw)
		if err != nil {
			if proto.CodeOf(err) != proto.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		if _, ok := v["must"].(string); !ok {
			t.Fatalf("%s: required and missing", raw)
		}
		text, err := Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		again, more, err := Input(typedFields, text)
		if err != nil || len(more) > 0 {
			t.Fatalf("%s became %s: %v %v", raw, text, more, err)
		}
		if second, _ := Encode(again); string(second) != string(text) {
			t.Fatalf("%s became %s", text, second)
		}
		for _, name := range dropped {
			if _, kept := v[name]; kept {
				t.Fatalf("%s was dropped and kept", name)
			}
		}
	})
}

// FuzzSchema checks that a schema is either refused with a path in it, or usable for checks.
func FuzzSchema(f *testing.F) {
	f.Add(
		[]byte(
			`[{"name":"a","field_type":"STRING","required":true},{"name":"b","field_type":"ARRAY","items_type":"OBJECT"}]`))
	f.Add([]byte(`[{"name":"a","field_type":"string"}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var fields []proto.ToolField
		if json.Unmarshal(raw, &fields) != nil {
			return
		}
		if err := Check("s", fields); err != nil {
			if e := proto.AsError(err); e.Code != proto.InvalidArgument || !strings.HasPrefix(e.Item, "s") ||
				!strings.Contains(e.Message, e.Item) {
				t.Fatalf("%v", err)
			}
			return
		}
		object := map[string]any{}
		for _, f := range fields {
			object[f.Name] = map[string]any{"STRING": "x", "INTEGER": json.Number("1"), "NUMBER": json.Number("1.5"),
				"BOOLEAN": true, "ARRAY": []any{}, "OBJECT": map[string]any{}}[f.FieldType]
		}
		if out, err := new(checker).fields("input", fields, maps.Clone(object)); err != nil || len(out) != len(object) {
			t.Fatalf("%v %v", out, err)
		}
	})
}
