package settings

import "strings"

// A List is a flag that may be repeated, and whose elements a function parses. It implements pflag.SliceValue, so that
// its values can be read again, unlike those of pflag.Func.
type List[T any] struct {
	parse  func(string) (T, error)
	values *[]T
	texts  []string
}

// NewList returns a flag that appends what it parses to values.
func NewList[T any](values *[]T, parse func(string) (T, error)) *List[T] {
	return &List[T]{parse: parse, values: values}
}

// Set implements pflag.Value.
func (l *List[T]) Set(text string) error { return l.Append(text) }

// Type implements pflag.Value.
func (l *List[T]) Type() string { return "string" }

// String implements pflag.Value.
func (l *List[T]) String() string {
	if l == nil || len(l.texts) == 0 {
		return ""
	}
	return "[" + strings.Join(l.texts, ",") + "]"
}

// Append implements pflag.SliceValue.
func (l *List[T]) Append(text string) error {
	v, err := l.parse(text)
	if err == nil {
		*l.values, l.texts = append(*l.values, v), append(l.texts, text)
	}
	return err
}

// Replace implements pflag.SliceValue.
func (l *List[T]) Replace(texts []string) error {
	var values []T
	for _, text := range texts {
		v, err := l.parse(text)
		if err != nil {
			return err
		}
		values = append(values, v)
	}
	*l.values, l.texts = values, texts
	return nil
}

// GetSlice implements pflag.SliceValue.
func (l *List[T]) GetSlice() []string { return l.texts }
