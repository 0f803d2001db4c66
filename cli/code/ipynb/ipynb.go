// Package ipynb reads and writes notebooks of Jupyter: files of nbformat 4. It keeps what it does not know.
// https://nbformat.readthedocs.io/en/latest/format_description.html is the format.
package ipynb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/proto"
)

// MaxBytes bounds a notebook. Figures in outputs make some large.
const MaxBytes = 64 << 20

// format is the version that this package reads and writes. Jupyter has written it since 2014.
const format = 4

// tagRaises is the tag of a cell that is expected to fail.
const tagRaises = "raises-exception"

type object = map[string]json.RawMessage

// A Notebook is a file.
type Notebook struct {
	Cells  []*Cell
	fields object // all but the cells
}

// A Cell is one cell of a notebook.
type Cell struct {
	Source string
	fields object // all but the source
}

// Parse reads a notebook. Its errors are InvalidArgument and name the file.
func Parse(name string, data []byte) (*Notebook, error) {
	var fields object
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, proto.Errorf(proto.InvalidArgument, "", name, "%s is no notebook: %v", name, err)
	}
	var version int
	if err := json.Unmarshal(fields["nbformat"], &version); err != nil || version != format {
		return nil, proto.Errorf(proto.InvalidArgument, "", name, "%s is no notebook of format %d; open it with "+
			"Jupyter and save it", name, format)
	}
	var cells []object
	if err := json.Unmarshal(fields["cells"], &cells); err != nil {
		return nil, proto.Errorf(proto.InvalidArgument, "", name, "the cells of %s cannot be read: %v", name, err)
	}
	n := &Notebook{fields: fields}
	for i, c := range cells {
		source, err := lines(c["source"])
		if err != nil {
			return nil, proto.Errorf(proto.InvalidArgument, "", name, "cell %d of %s has no source: %v", i+1, name, err)
		}
		n.Cells = append(n.Cells, &Cell{Source: source, fields: c})
	}
	return n, nil
}

// Language is the language of the notebook's kernel, in lower case. It is empty if the notebook does not name it.
func (n *Notebook) Language() string {
	var meta struct {
		Kernel struct {
			Language string `json:"language"`
		} `json:"kernelspec"`
		Info struct {
			Name string `json:"name"`
		} `json:"language_info"`
	}
	_ = json.Unmarshal(n.fields["metadata"], &meta) // metadata of another shape names no language
	if meta.Kernel.Language != "" {
		return strings.ToLower(meta.Kernel.Language)
	}
	return strings.ToLower(meta.Info.Name)
}

// IsCode reports whether the cell has code to run.
func (c *Cell) IsCode() bool {
	var kind string
	return json.Unmarshal(c.fields["cell_type"], &kind) == nil && kind == "code" && strings.TrimSpace(c.Source) != ""
}

// MayFail reports whether the cell is tagged as one that fails.
func (c *Cell) MayFail() bool {
	var meta struct {
		Tags []string `json:"tags"`
	}
	return json.Unmarshal(c.fields["metadata"], &meta) == nil && slices.Contains(meta.Tags, tagRaises)
}

// SetOutcome replaces the outputs of a cell, which was the count-th to run.
func (c *Cell) SetOutcome(count int, res proto.Outcome) error {
	outputs := []any{} // null would be no notebook
	for _, s := range []struct {
		name  string
		lines []string
	}{{"stdout", res.Logs.Stdout}, {"stderr", res.Logs.Stderr}} {
		if len(s.lines) > 0 {
			outputs = append(outputs, map[string]any{"output_type": "stream", "name": s.name, "text": s.lines})
		}
	}
	for i, b := range res.Rich {
		out := map[string]any{"output_type": "display_data", "metadata": object{}, "data": forms(b)}
		if res.MainResult != nil && *res.MainResult == i {
			out["output_type"], out["execution_count"] = "execute_result", count
		}
		outputs = append(outputs, out)
	}
	if d := res.ErrorDetail; d != nil {
		outputs = append(outputs, map[string]any{"output_type": "error", "ename": d.Name, "evalue": d.Message,
			"traceback": strings.Split(strings.TrimSuffix(d.Traceback, "\n"), "\n")})
	}
	for name, value := range map[string]any{"outputs": outputs, "execution_count": count} {
		text, err := encoded(value, "")
		if err != nil {
			return fmt.Errorf("the outputs of cell %d: %w", count, err)
		}
		c.fields[name] = text
	}
	return nil
}

// forms returns a result as notebooks have it: texts as lists of lines.
func forms(b proto.Bundle) map[string]any {
	data := map[string]any{}
	for media, part := range b {
		var text string
		if json.Unmarshal(part, &text) == nil && (strings.HasPrefix(media, "text/") || media == "image/svg+xml") {
			data[media] = strings.SplitAfter(text, "\n")
		} else {
			data[media] = part
		}
	}
	return data
}

// Encode writes the notebook as Jupyter does: with sorted keys, indented by one space.
func (n *Notebook) Encode() ([]byte, error) {
	cells := make([]object, len(n.Cells))
	for i, c := range n.Cells {
		cells[i] = c.fields
	}
	text, err := encoded(cells, "")
	if err != nil {
		return nil, err
	}
	fields := maps.Clone(n.fields)
	fields["cells"] = text
	return encoded(fields, " ")
}

// lines reads a text that is a string or a list of strings.
func lines(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var list []string
	err := json.Unmarshal(raw, &list)
	return strings.Join(list, ""), err
}

func encoded(v any, indent string) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return out.Bytes(), err
}
