// Package arguments turns the arguments of the command `tools` into the input of a call, by the tool's schema: values
// by name, and others in the order of the schema's properties. Package command of tools/bridge/inside is the caller.
// The guest links this package, so it imports little.
package arguments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxInput bounds what is read from standard input, in bytes. No call can have a larger input.
const maxInput = 4 << 20

// A Tool is a tool as the daemon lists it.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Async       bool            `json:"async,omitempty"`

	Listed bool     `json:"-"`
	schema struct { // the parts of the input schema that matter here
		Properties properties `json:"properties"`
		Required   []string   `json:"required"`
	}
}

// properties are those of a schema, in its order.
type properties []property

type property struct {
	Name        string `json:"-"`
	Type        any    `json:"type"`
	Description string `json:"description"`
}

// UnmarshalJSON keeps the order, which is the order of values without a name.
func (p *properties) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		var one property
		_ = json.Unmarshal(raw, &one) // true is a schema, too
		one.Name = name.(string)
		*p = append(*p, one)
	}
	return nil
}

// Find returns the tool with a name. A tool that is not listed can be called all the same: the daemon then says why it
// is missing.
func Find(list []Tool, name string) Tool {
	for _, t := range list {
		if t.Name == name {
			t.Listed = true
			_ = json.Unmarshal(t.InputSchema, &t.schema) // without a usable schema, each value needs a name
			return t
		}
	}
	return Tool{Name: name}
}

// Has reports whether the schema has a property.
func (t Tool) Has(name string) bool {
	return slices.ContainsFunc(t.schema.Properties, func(p property) bool { return p.Name == name })
}

// Summary is the first line of the description.
func (t Tool) Summary() string {
	line, _, _ := strings.Cut(strings.TrimSpace(t.Description), "\n")
	return line
}

// PrintHelp describes the tool and its properties.
func (t Tool) PrintHelp(w io.Writer) {
	fmt.Fprintf(w, "usage: tools %s", t.Name)
	for _, p := range t.schema.Properties {
		kind := "any"
		switch t := p.Type.(type) {
		case string:
			kind = t
		case []any:
			kinds := make([]string, len(t))
			for i, one := range t {
				kinds[i] = fmt.Sprint(one)
			}
			kind = strings.Join(kinds, "|")
		}
		format := " [%s=%s]"
		if slices.Contains(t.schema.Required, p.Name) {
			format = " %s=%s"
		}
		fmt.Fprintf(w, format, p.Name, kind)
	}
	fmt.Fprintf(w, "\n\n%s\n", strings.TrimSpace(t.Description))
	for i, p := range t.schema.Properties {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %s  %s", p.Name, p.Description), " "))
	}
}

// value returns an argument as a property's value: the text itself for a string, JSON for another type, and either if
// the schema names no type.
func (p property) value(word string) any {
	if p.Type == "string" || !json.Valid([]byte(word)) {
		return word
	}
	raw := json.RawMessage(word)
	if list, ok := p.Type.([]any); ok && slices.Contains(list, any("string")) && raw[0] != '{' && raw[0] != '[' {
		return word
	}
	return raw
}

// Input returns the input that the arguments of a call describe.
func (t Tool) Input(words []string, stdin io.Reader) (any, error) {
	if len(words) == 1 && words[0] == "-" {
		b, err := io.ReadAll(io.LimitReader(stdin, maxInput+1))
		if err != nil {
			return nil, err
		}
		if b = bytes.TrimSpace(b); len(b) > maxInput || !json.Valid(b) || b[0] != '{' {
			return nil, fmt.Errorf("standard input is not a JSON object of at most %d bytes", maxInput)
		}
		return json.RawMessage(b), nil
	}
	if len(words) == 1 && strings.HasPrefix(words[0], "{") && json.Valid([]byte(words[0])) {
		return json.RawMessage(words[0]), nil
	}
	a := assignment{t: t, in: map[string]any{}}
	for len(words) > 0 {
		n, err := a.assign(words)
		// without the schema, the remaining words could still make a call, but one with another meaning
		if err != nil && !t.Listed {
			err = fmt.Errorf("no provider serves the tool %s now, so the meaning of %q is unknown; write it as "+
				"NAME=VALUE, and the answer says why the tool is missing", t.Name, words[0])
		}
		if err != nil {
			return nil, err
		}
		words = words[n:]
	}
	return a.in, nil
}

// An assignment gives arguments to properties.
type assignment struct {
	t     Tool
	in    map[string]any
	exact bool // after --: no argument is an option any more
}

// assign assigns the first argument, and the next if it belongs to it, and returns how many these were.
func (a *assignment) assign(words []string) (int, error) {
	word := words[0]
	if word == "--" && !a.exact {
		a.exact = true
		return 1, nil
	}
	if name, ok := strings.CutPrefix(word, "--"); ok && !a.exact && name != "" {
		return a.assignOption(name, words)
	}
	free := a.firstFree()
	if name, value, ok := strings.Cut(word, "="); ok && !a.exact && (a.t.Has(name) || free == nil && isName(name)) {
		return 1, a.set(name, value)
	}
	if free == nil {
		return 0, fmt.Errorf("%q is one argument too many; see tools %s --help", word, a.t.Name)
	}
	return 1, a.set(free.Name, word)
}

// assignOption assigns --name value, --name=value, and --name of a boolean.
func (a *assignment) assignOption(name string, words []string) (int, error) {
	if name, value, ok := strings.Cut(name, "="); ok {
		return 1, a.set(name, value)
	}
	if p := a.t.property(name); p.Type == "boolean" && (len(words) == 1 || words[1] != "true" && words[1] != "false") {
		return 1, a.set(name, "true")
	}
	if len(words) == 1 {
		return 0, fmt.Errorf("--%s has no value; see tools %s --help", name, a.t.Name)
	}
	return 2, a.set(name, words[1])
}

// firstFree returns the first property without a value, or nil.
func (a *assignment) firstFree() *property {
	for i, p := range a.t.schema.Properties {
		if _, ok := a.in[p.Name]; !ok {
			return &a.t.schema.Properties[i]
		}
	}
	return nil
}

func (a *assignment) set(name, word string) error {
	if _, ok := a.in[name]; ok {
		return errors.New(name + " has a value already")
	}
	a.in[name] = a.t.property(name).value(word)
	return nil
}

// property returns the property with a name, or one without a type.
func (t Tool) property(name string) property {
	for _, p := range t.schema.Properties {
		if p.Name == name {
			return p
		}
	}
	return property{Name: name}
}

func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
	})
}
