package rawjson

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// The functions here split values that are known to be valid, since Parse or ParseArray has checked the text around
// them. They copy nothing, and they find the ends of strings without looking at each byte, so a history of many
// megabytes may be split again and again. Of an invalid value they return something that is inside of it.

// Known splits an object that is known to be valid. ok reports whether it is an object.
func Known(raw []byte) (o Object, ok bool) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return nil, false
	}
	o = make(Object, 0, 4)
	for name, value := range Members(raw) {
		o = append(o, member{textOf(name), value})
	}
	return o, true
}

// Member returns the value of a member of an object that is known to be valid, or nil if there is none.
func Member(raw []byte, name string) json.RawMessage {
	for n, value := range Members(raw) {
		if IsText(n, name) {
			return value
		}
	}
	return nil
}

// Members returns the members of an object that is known to be valid, each with its name as JSON.
func Members(raw []byte) func(yield func(name []byte, value json.RawMessage) bool) {
	return func(yield func([]byte, json.RawMessage) bool) {
		if i := skipSpace(raw, 0); i >= len(raw) || raw[i] != '{' {
			return
		}
		Walk(raw, 0, func(name []byte, at int) (end int) {
			if end = SkipValue(raw, at); !yield(name, raw[at:end:end]) {
				return len(raw)
			}
			return end
		})
	}
}

// Walk goes through the object or array at i, which is known to be valid, and returns its end. For each value it calls
// visit, which returns the end of the value, so that nested values can be visited without looking for their ends
// before. The name of a member is JSON, that of an element nil.
func Walk(raw []byte, i int, visit func(name []byte, at int) (end int)) (end int) {
	if i = skipSpace(raw, i); i >= len(raw) || raw[i] != '{' && raw[i] != '[' {
		return SkipValue(raw, i)
	}
	closing := raw[i] + 2 // } or ]
	for i = skipSpace(raw, i+1); i < len(raw) && raw[i] != closing; {
		var name []byte
		if closing == '}' {
			if raw[i] != '"' {
				return len(raw)
			}
			end := skipString(raw, i)
			name = raw[i:end:end]
			i = skipSpace(raw, min(skipSpace(raw, end)+1, len(raw))) // behind the colon
		}
		end := visit(name, i)
		if end == i {
			return len(raw)
		}
		if i = skipSpace(raw, end); i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return min(i+1, len(raw))
}

// A Change is a new value for a member of an object.
type Change struct {
	Name  string
	Value json.RawMessage
}

// AppendRewrite appends an object that is known to be valid without one of its members, and with new values for others,
// each at its old place, or at the end.
func AppendRewrite(b, raw []byte, without string, changes ...Change) []byte {
	b = append(b, '{')
	begin, done := len(b), 0 // done: bits of the changes that are made
	for name, value := range Members(raw) {
		if IsText(name, without) {
			continue
		}
		for i, c := range changes {
			if IsText(name, c.Name) {
				value, done = c.Value, done|1<<i
			}
		}
		if len(b) > begin {
			b = append(b, ',')
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	for i, c := range changes {
		if done&(1<<i) == 0 {
			if len(b) > begin {
				b = append(b, ',')
			}
			b = append(append(AppendText(b, c.Name), ':'), c.Value...)
		}
	}
	return append(b, '}')
}

// Elements returns the elements of an array that is known to be valid. ok reports whether it is an array.
func Elements(raw []byte) (list []json.RawMessage, ok bool) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return nil, false
	}
	list = []json.RawMessage{}
	Walk(raw, i, func(_ []byte, at int) int {
		end := SkipValue(raw, at)
		if end > at {
			list = append(list, raw[at:end:end])
		}
		return end
	})
	return list, true
}

// skipSpace returns the position of the first byte from i that is no white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the end of the string that begins at i.
func skipString(b []byte, i int) int {
	// most strings are names and IDs, whose end is near
	for i++; i < len(b) && i&31 != 0; i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	for begin := i; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		escapes := 0
		for k := i - 1; k >= begin && b[k] == '\\'; k-- {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
	return len(b)
}

// SkipValue returns the end of the value that begins at i, which is known to be valid.
func SkipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] != ' ' && b[i] != '\n' && b[i] != '\t' &&
		b[i] != '\r' {
		i++
	}
	return i
}

// IsText reports whether a string in JSON is a text that needs no escapes.
func IsText(raw []byte, text string) bool {
	if len(raw) == len(text)+2 && string(raw[1:len(raw)-1]) == text {
		return true
	}
	if len(raw) > 2 && text != "" && raw[1] != text[0] && raw[1] != '\\' && raw[1] < utf8.RuneSelf {
		return false // it begins with another letter
	}
	return (bytes.IndexByte(raw, '\\') >= 0 || !utf8.Valid(raw)) && textOf(raw) == text
}

// maxFrequent is the length of the longest of the frequent texts, as JSON.
const maxFrequent = 42

// frequent are texts of which every history has many. They are not copied.
var frequent = func() map[string]string {
	all := map[string]string{}
	for _, text := range []string{"type", "text", "role", "content", "user", "assistant", "system", "id", "name",
		"input", "tool_use", "tool_result", "tool_use_id", "server_tool_use", "bash_code_execution",
		"bash_code_execution_tool_result", "bash_code_execution_result", "text_editor_code_execution",
		"text_editor_code_execution_tool_result", "code_execution", "code_execution_tool_result",
		"code_execution_result", "stdout", "stderr", "return_code", "caller", "direct", "thinking", "signature",
		"image", "source", "cache_control", "is_error", "citations", "command"} {
		all[text] = text
	}
	return all
}()

// textOf returns the text of a string in JSON, or "" if it is no string.
func textOf(raw []byte) (text string) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return ""
	}
	if len(raw) <= maxFrequent {
		if text, ok := frequent[string(raw[1:len(raw)-1])]; ok {
			return text
		}
	}
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1])
	}
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}
