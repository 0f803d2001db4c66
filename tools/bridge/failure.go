package bridge

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Types of failures, named as the exceptions that code gets.
const (
	PermissionError = "PermissionError" // the tool is not on the list, or a person refused the call
	NameError       = "NameError"       // no provider has a tool of that name
	ValueError      = "ValueError"      // the input does not match the tool's schema
	TimeoutError    = "TimeoutError"    // no provider answered in time
	RuntimeError    = "RuntimeError"    // everything else
)

var failureTypes = []string{PermissionError, NameError, ValueError, TimeoutError, RuntimeError}

// A Failure is what code gets instead of a result: the type of an exception, and its message.
type Failure struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// maxMessage bounds a failure's message, in bytes.
const maxMessage = 8 << 10

func fail(kind, format string, args ...any) *Failure {
	return (&Failure{kind, fmt.Sprintf(format, args...)}).bounded()
}

// bounded is the failure in the size that code may get, whatever its origin.
func (f *Failure) bounded() *Failure {
	out := *f
	if !slices.Contains(failureTypes, out.Type) {
		out.Type = RuntimeError
	}
	if out.Message == "" {
		out.Message = "the tool failed and did not say why"
	}
	out.Message = cut(out.Message, maxMessage)
	return &out
}

// cut shortens a text to at most that many bytes of whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// late is the failure of a call that got no answer in time.
func late(name string, seconds float64) *Failure {
	return fail(TimeoutError, "Calling tool ['%s'] timed out (no response after %gs).", name, seconds)
}
