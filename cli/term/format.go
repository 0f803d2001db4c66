package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// A Format says how values are printed. The zero value is JSON.
type Format struct {
	yaml     bool
	template *template.Template
}

// Formats are the names for SetFormat.
var Formats = []string{"json", "yaml", "name", "wide"}

// SetFormat chooses how results are printed: a name of Formats.
func (o *Output) SetFormat(name string) error {
	switch name {
	case "json":
		o.JSON = true
	case "yaml":
		o.JSON, o.Format.yaml = true, true
	case "name":
		o.Names = true
	case "wide":
		o.Wide = true
	default:
		return fmt.Errorf("there is no format %q; use one of %s", name, strings.Join(Formats, ", "))
	}
	return nil
}

// SetTemplate has values printed by a template of Go's text/template. Its data are values as the API has them: fields
// have the names of the JSON. Lists are printed item by item.
func (o *Output) SetTemplate(text string) error {
	t, err := template.New("format").Funcs(template.FuncMap{
		"json": func(v any) (string, error) {
			data, err := json.Marshal(v)
			return string(data), err
		},
		"join": func(sep string, list []any) string {
			words := make([]string, len(list))
			for i, v := range list {
				words[i] = fmt.Sprint(v)
			}
			return strings.Join(words, sep)
		},
		"upper": strings.ToUpper, "lower": strings.ToLower,
	}).Parse(text)
	if err != nil {
		return fmt.Errorf("this is no template: %w; write it as '{{.id}} {{.state}}'",
			stripped{err, "template: format:"})
	}
	o.JSON, o.Format.template = true, t
	return nil
}

// stripped is an error without a prefix of its text.
type stripped struct {
	error
	prefix string
}

func (s stripped) Error() string { return strings.TrimPrefix(s.error.Error(), s.prefix) }

// Unwrap returns the error with its prefix.
func (s stripped) Unwrap() error { return s.error }

// PrintJSON prints a value in the format that the user chose: as indented JSON by default.
func (o *Output) PrintJSON(v any) error {
	return o.printValue(v, func() ([]byte, error) { return json.MarshalIndent(v, "", "  ") })
}

// PrintLine prints a value of a stream: as JSON on one line by default.
func (o *Output) PrintLine(v any) error {
	if o.Format.yaml { // a document for each value
		if _, err := io.WriteString(o.Stdout, "---\n"); err != nil {
			return err
		}
	}
	return o.printValue(v, func() ([]byte, error) { return json.Marshal(v) })
}

func (o *Output) printValue(v any, asJSON func() ([]byte, error)) error {
	data, err := asJSON()
	if err != nil {
		return err
	}
	switch {
	case o.Format.template != nil:
		return o.printTemplate(data)
	case o.Format.yaml:
		text, err := yamlOf(data)
		if err != nil {
			return err
		}
		_, err = io.WriteString(o.Stdout, text)
		return err
	}
	_, err = io.WriteString(o.Stdout, EscapeControls(string(data))+"\n")
	return err
}

// yamlOf returns a JSON text as YAML, with its fields in their order.
func yamlOf(data []byte) (string, error) {
	var n yaml.Node
	// JSON is YAML, but for what EscapeControls escapes: JSON may hold it as it is.
	if err := yaml.Unmarshal([]byte(EscapeControls(string(data))), &n); err != nil {
		return "", err
	}
	plain(&n)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(&n)
	return b.String(), err
}

// plain takes the braces and quotes of JSON out of a tree. The encoder quotes the texts that need it.
func plain(n *yaml.Node) {
	if n.Style = 0; n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.Contains(n.Value, "\n") {
		n.Style = yaml.LiteralStyle
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// printTemplate prints a JSON text by the user's template: a list item by item, each on a line of its own.
func (o *Output) printTemplate(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // or else 1e+06
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	items, ok := v.([]any)
	if !ok {
		items = []any{v}
	}
	for _, item := range items {
		var b strings.Builder
		if err := o.Format.template.Execute(&b, item); err != nil {
			return fmt.Errorf("the template cannot be applied: %w", stripped{err, "template: format:"})
		}
		for line := range strings.SplitSeq(b.String(), "\n") {
			parts := strings.Split(line, "\t")
			for i, p := range parts {
				parts[i] = Printable(p)
			}
			if _, err := fmt.Fprintln(o.Stdout, strings.Join(parts, "\t")); err != nil {
				return err
			}
		}
	}
	return nil
}
