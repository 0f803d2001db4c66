package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxInput bounds what is read from standard input, in bytes: more is no input of a call.
const maxInput = 4 << 20

// A tool is one as the daemon lists it.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Async       bool            `json:"async,omitempty"`

	listed bool
	schema schema
}

// A schema is what matters here of a tool's.
type schema struct {
	Properties properties `json:"properties"`
	Required   []string   `json:"required"`
}

// properties are those of a schema, in its order.
type properties []property

type property struct {
	Name        string `json:"-"`
	Type        any    `json:"type"`
	Description string `json:"description"`
}

// UnmarshalJSON keeps the order, which is that of values without a name.
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

// find is the tool of that name. One that is not listed may be asked for all the same: the daemon says why not.
func find(list []tool, name string) tool {
	for _, t := range list {
		if t.Name == name {
			t.listed = true
			_ = json.Unmarshal(t.InputSchema, &t.schema) // where it is odd, values have names or there are none
			return t
		}
	}
	return tool{Name: name}
}

func (t tool) has(name string) bool {
	return slices.ContainsFunc(t.schema.Properties, func(p property) bool { return p.Name == name })
}

// summary is the first line of what the tool does.
func (t tool) summary() string {
	line, _, _ := strings.Cut(strings.TrimSpace(t.Description), "\n")
	return line
}

func (t tool) help(w io.Writer) {
	fmt.Fprintf(w, "usage: tools %s", t.Name)
	for _, p := range t.schema.Properties {
		word := p.Name + "=" + p.kind()
		if !slices.Contains(t.schema.Required, p.Name) {
			word = "[" + word + "]"
		}
		fmt.Fprint(w, " ", word)
	}
	fmt.Fprintf(w, "\n\n%s\n", strings.TrimSpace(t.Description))
	for i, p := range t.schema.Properties {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %s  %s", p.Name, p.Description), " "))
	}
}

// kind is a property's type, for people.
func (p property) kind() string {
	switch t := p.Type.(type) {
	case string:
		return t
	case []any:
		words := make([]string, len(t))
		for i, one := range t {
			words[i] = fmt.Sprint(one)
		}
		return strings.Join(words, "|")
	}
	return "any"
}

// value is a word as a property's value: the text itself for a string, JSON for what else the schema says, and either
// where it says nothing.
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

// input is what the words of a call mean.
func (t tool) input(words []string, stdin io.Reader) (any, error) {
	if len(words) == 1 && words[0] == "-" {
		return readInput(stdin)
	}
	if len(words) == 1 && strings.HasPrefix(words[0], "{") && json.Valid([]byte(words[0])) {
		return json.RawMessage(words[0]), nil
	}
	a := assignment{t: t, in: map[string]any{}}
	for len(words) > 0 {
		n, err := a.take(words)
		// a call with what is left of the words could be made after all, and mean something else
		if err != nil && !t.listed {
			err = fmt.Errorf("the tool %s is not served just now, so that nobody knows what %q means; name the "+
				"words, as in NAME=VALUE, and the answer says why", t.Name, words[0])
		}
		if err != nil {
			return nil, err
		}
		words = words[n:]
	}
	return a.in, nil
}

func readInput(r io.Reader) (any, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, err
	}
	if b = bytes.TrimSpace(b); len(b) > maxInput || !json.Valid(b) || b[0] != '{' {
		return nil, fmt.Errorf("standard input is not a JSON object of at most %d bytes", maxInput)
	}
	return json.RawMessage(b), nil
}

// An assignment gives words to properties.
type assignment struct {
	t     tool
	in    map[string]any
	exact bool // after --: no word is an option any more
}

// take deals with the first word, and the next if it belongs to it, and says how many these were.
func (a *assignment) take(words []string) (int, error) {
	word := words[0]
	if word == "--" && !a.exact {
		a.exact = true
		return 1, nil
	}
	if name, ok := strings.CutPrefix(word, "--"); ok && !a.exact && name != "" {
		return a.option(name, words)
	}
	if name, value, ok := strings.Cut(word, "="); ok && !a.exact && (a.t.has(name) || a.next() == nil && isName(name)) {
		return 1, a.set(name, value)
	}
	p := a.next()
	if p == nil {
		return 0, fmt.Errorf("%q is too much; see tools %s --help", word, a.t.Name)
	}
	return 1, a.set(p.Name, word)
}

// option deals with --name value, --name=value, and --name of a boolean.
func (a *assignment) option(name string, words []string) (int, error) {
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

// next is the first property that has no value yet; nil if there is none.
func (a *assignment) next() *property {
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

// property is the one of that name, or one of which nothing is known.
func (t tool) property(name string) property {
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
