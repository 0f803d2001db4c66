package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The work of a check is bounded by the size of its value, whatever the schema.
func TestCost(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"n%d",`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	numbers := func(n int) string {
		return "[" + strings.ReplaceAll(strings.ReplaceAll(names(n), `"n`, ""), `"`, "") + "]"
	}
	chain := `{"$defs": {`
	for i := range 30 {
		chain += fmt.Sprintf(`"a%d": {"allOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]}, `, i, i+1, i+1)
	}
	chain += `"a30": {}}, "$ref": "#/$defs/a0"}`
	tree := `{"$defs": {"n": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"$ref": "#/$defs/n"}}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}}]}}, "$ref": "#/$defs/n"}`
	for _, c := range []struct {
		schema, value string
		want          error
	}{
		{`{"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}`, nested(60), errTooCostly},
		{`{"not": {"anyOf": [{"contains": {"$ref": "#/not"}}, {"items": {"$ref": "#/not"}}, {"minItems": 5}]}}`,
			nested(60), errTooCostly},
		{chain, `1`, errTooCostly},
		{`{"items": {"allOf": [` + strings.TrimSuffix(strings.Repeat(`{"minimum": 0},`, 4000), ",") + `]}}`,
			"[" + strings.Repeat("1,", 100_000) + "1]", errTooCostly},
		{`{"items": {"type": "integer"}}`, "[" + strings.Repeat("1e999999,", 1000) + "1]", errExponent},
		{`{"minimum": 0}`, `1e-999999`, errExponent},
		{`{"items": {"enum": [` + strings.TrimSuffix(strings.Repeat(`1,`, 50), ",") + `]}}`, "[" + strings.Repeat(
			"1e1000,", 100_000) + "1]", errTooCostly},
		{`{"items": {"const": [` + strings.Repeat("[1],", 10_000) + `1]}}`, "[" + strings.Repeat("[],", 10_000) + "1]",
			errTooCostly},
		{`{"items": {"required": [` + names(5000) + `]}}`, "[" + strings.Repeat("{},", 10_000) + "1]", errTooCostly},
		{`{"uniqueItems": true}`, "[" + strings.Repeat("[[1],2],", 20_000) + "[[1,2]]]", errTooCostly},
		{`{"items": {"uniqueItems": true}}`, "[" + strings.Repeat(
			"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20],", 10_000) + "1]", errTooCostly},
		{`{"uniqueItems": true}`, "[" + strings.Repeat("[],", 20_000) + "[]]", errTooCostly},
		{`{"uniqueItems": true}`, numbers(100_000), nil},
		{`{"items": {"enum": [` + names(200) + `]}}`, "[" + strings.Repeat(`"n1",`, 10_000) + `"n2"]`, nil},
		{`{"items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}`, "[" + strings.Repeat("1,", 500_000) + "null]",
			nil},
		{tree, nested(60), nil},
		{tree, `{"a": [1, {"b": [2, 3.5e3]}]}`, nil},
		{`{"items": {"type": "integer"}}`, "[" + strings.Repeat("1,", 500_000) + "1]", nil},
	} {
		s, err := Compile("schema", []byte(c.schema))
		if err != nil {
			if c.want == nil || !strings.Contains(err.Error(), "references") {
				t.Errorf("%.60s: %v", c.schema, err)
			}
			continue
		}
		if err := s.Check("input", []byte(c.value)); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%.60s: %v, not %v", c.schema, err, c.want)
		}
	}
}

// A large value is refused without a reason for each of its parts, which the validator would have to keep.
func TestManyFaults(t *testing.T) {
	s, err := Compile("schema", []byte(`{"properties": {"x": {"type": "array", "items": {"type": "string"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{
		10:      "input.x.0: got number, want string",
		500_000: "input: it does not match the schema, and is too large to say where",
	} {
		value := []byte(`{"x": [` + strings.Repeat("1,", n) + `1]}`)
		if err := s.Check("input", value); err == nil || err.Error() != want {
			t.Errorf("%d numbers: %v", n, err)
		}
	}
	if err := s.Check("input", []byte(`{"x": [`+strings.Repeat(`"",`, 300_000)+`""]}`)); err != nil {
		t.Error(err)
	}
}
