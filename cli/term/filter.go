package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
)

// Filters keep items of a list by their fields. All must match.
type Filters []filter

// A filter compares one field. The field has the names of the JSON, with dots between those of nested ones.
type filter struct {
	field string
	want  string // a pattern as of path.Match
	not   bool
}

// Add adds a filter that is written FIELD=PATTERN or FIELD!=PATTERN.
func (f *Filters) Add(text string) error {
	field, want, ok := strings.Cut(text, "=")
	field, not := strings.CutSuffix(field, "!")
	if !ok || field == "" {
		return fmt.Errorf("%q is no filter; write it as FIELD=PATTERN or FIELD!=PATTERN, such as state=running", text)
	}
	if _, err := path.Match(want, ""); err != nil {
		return fmt.Errorf("the pattern of the filter %q is not closed", text)
	}
	*f = append(*f, filter{field: field, want: want, not: not})
	return nil
}

// filtered returns the items that all filters keep. A field that the kind of item lacks is an error: it would hide all
// items. A field that an item leaves out is empty.
func filtered[T any](filters Filters, list []T) ([]T, error) {
	if len(filters) == 0 {
		return list, nil
	}
	known := fieldNames(reflect.TypeFor[T]())
	for _, f := range filters {
		if first, _, _ := strings.Cut(f.field, "."); !slices.Contains(known, first) {
			return nil, fmt.Errorf("--filter: items have no field %q; they have %s", first, strings.Join(known, ", "))
		}
	}
	var kept []T
	for _, item := range list {
		data, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber() // or else 1e+06
		var fields map[string]any
		if err := d.Decode(&fields); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(filters, func(f filter) bool { return f.match(fields) == f.not }) {
			kept = append(kept, item)
		}
	}
	return kept, nil
}

// match reports whether a field has a value that fits the pattern. One value of a list is enough.
func (f filter) match(fields map[string]any) bool {
	var v any = fields
	// The key of a label may hold dots, so the rest is tried as a whole first.
	for rest := f.field; rest != ""; {
		m, ok := v.(map[string]any)
		if !ok {
			v = nil
			break
		}
		if whole, ok := m[rest]; ok {
			v = whole
			break
		}
		first, after, _ := strings.Cut(rest, ".")
		v, rest = m[first], after
	}
	values, ok := v.([]any)
	if !ok {
		values = []any{v}
	}
	return slices.ContainsFunc(values, func(v any) bool {
		text := ""
		if v != nil {
			text = fmt.Sprint(v)
		}
		// A star stands for slashes, too: the names of images have them.
		ok, _ := path.Match(strings.ReplaceAll(f.want, "/", "\x00"), strings.ReplaceAll(text, "/", "\x00"))
		return ok
	})
}

// fieldNames returns the names that the fields of a type have in JSON, sorted.
func fieldNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && f.IsExported() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
