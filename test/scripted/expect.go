package scripted

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// differs returns how a request differs from what is expected, or "" if it does not.
func (e Expect) differs(r *received) string {
	if e.Path != "" && e.Path != r.path {
		return unlike(e.Path, r.path, "the path")
	}
	if e.Model != "" && r.value("/model") != e.Model {
		return unlike(e.Model, r.value("/model"), "/model")
	}
	if e.Stream != nil && *e.Stream != r.stream() {
		return unlike(*e.Stream, r.stream(), "/stream")
	}
	for _, look := range []func(*received) string{e.differsInHead, e.differsInTools, e.differsInMessages,
		e.differsInBody} {
		if wrong := look(r); wrong != "" {
			return wrong
		}
	}
	return ""
}

func (e Expect) differsInHead(r *received) string {
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if wrong := differ(e.Headers[name], one(r.header.Values(name)), "header "+name); wrong != "" {
			return wrong
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Query)) {
		if wrong := differ(e.Query[name], one(r.query[name]), "query "+name); wrong != "" {
			return wrong
		}
	}
	return ""
}

// one joins several values to one; it returns nil for none.
func one(values []string) any {
	if len(values) == 0 {
		return nil
	}
	return strings.Join(values, ", ")
}

func (e Expect) differsInTools(r *received) string {
	if e.Tools == nil && e.NoTools == nil {
		return ""
	}
	words := toolWords(r)
	for _, name := range e.Tools {
		if !slices.Contains(words, name) {
			return fmt.Sprintf("/tools has no %s, but %q", name, words)
		}
	}
	for _, name := range e.NoTools {
		if slices.Contains(words, name) {
			return fmt.Sprintf("/tools has %s, which must not be there", name)
		}
	}
	return ""
}

// toolWords returns the names and types of all tools.
func toolWords(r *received) (words []string) {
	list, _ := r.value("/tools").([]any)
	for _, tool := range list {
		for _, where := range []string{"/name", "/type", "/function/name"} {
			if word, _ := at(tool, where); word != nil {
				words = append(words, textOf(word))
			}
		}
	}
	return words
}

func (e Expect) differsInMessages(r *received) string {
	list, _ := r.value("/messages").([]any)
	if e.Messages != nil && len(list) != *e.Messages {
		return fmt.Sprintf("/messages has %d, expected %d", len(list), *e.Messages)
	}
	if e.Last == nil {
		return ""
	}
	if r.chat() {
		return differ(e.Last, list[max(0, len(list)-len(e.Last)):], "/messages")
	}
	return differ(e.Last, blocks(r.value("/messages/-1/content")), "/messages/-1/content")
}

// blocks returns a message's content as a list of blocks, even if the content is a string.
func blocks(content any) []any {
	if text, ok := content.(string); ok {
		return []any{map[string]any{"type": "text", "text": text}}
	}
	list, _ := content.([]any)
	return list
}

func (e Expect) differsInBody(r *received) string {
	for _, pointer := range slices.Sorted(maps.Keys(e.Body)) {
		if wrong := differ(e.Body[pointer], r.value(pointer), pointer); wrong != "" {
			return wrong
		}
	}
	return ""
}
