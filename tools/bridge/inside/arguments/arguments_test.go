package arguments

import (
	"strings"
	"testing"
)

// The arguments of a command line give either an input or an error.
func FuzzInput(f *testing.F) {
	list := []Tool{{Name: "t", InputSchema: []byte(
		`{"properties": {"a": {"type": "integer"}, "b": true, "on": {"type": "boolean"}, "n": {"type": ["null", "string"]}}}`)}}
	f.Add("a=1\x00--b\x002\x00--on")
	f.Add("{\"a\": 1}")
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, "\x00")
		input, err := Find(list, "t").Input(words, strings.NewReader(line))
		if (input == nil) == (err == nil) {
			t.Errorf("%q: %v %v", words, input, err)
		}
	})
}
