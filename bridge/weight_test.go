package bridge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// No schema has the daemon work for longer than its value is large.
func TestWeight(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
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
		{`{"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}`, nested(60), errIntricate},
		{`{"not": {"anyOf": [{"contains": {"$ref": "#/not"}}, {"items": {"$ref": "#/not"}}, {"minItems": 5}]}}`, nested(60), errIntricate},
		{chain, `1`, errIntricate},
		{`{"items": {"allOf": [` + strings.TrimSuffix(strings.Repeat(`{"minimum": 0},`, 4000), ",") + `]}}`, "[" + strings.Repeat("1,", 100_000) + "1]", errIntricate},
		{`{"items": {"type": "integer"}}`, "[" + strings.Repeat("1e999999,", 1000) + "1]", errExponent},
		{`{"minimum": 0}`, `1e-999999`, errExponent},
		{tree, nested(60), nil},
		{tree, `{"a": [1, {"b": [2, 3.5e3]}]}`, nil},
		{`{"items": {"type": "integer"}}`, "[" + strings.Repeat("1,", 500_000) + "1]", nil},
	} {
		s, err := compile("schema", []byte(c.schema))
		if err != nil {
			if c.want == nil || !strings.Contains(err.Error(), "references") {
				t.Errorf("%.60s: %v", c.schema, err)
			}
			continue
		}
		if err := s.check("input", []byte(c.value)); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%.60s: %v, not %v", c.schema, err, c.want)
		}
	}
}
