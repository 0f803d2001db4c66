package codeapi

import (
	"errors"
	"fmt"
	"slices"

	"berth/proto"
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
type Failure = proto.CallError

// maxMessage bounds a failure's message, in bytes.
const maxMessage = 8 << 10

// Fail makes a failure.
func Fail(kind, format string, args ...any) *Failure {
	return Bounded(&Failure{Type: kind, Message: fmt.Sprintf(format, args...)})
}

// Bounded is the failure in the size that code may get, whatever its origin.
func Bounded(f *Failure) *Failure {
	out := *f
	if !slices.Contains(failureTypes, out.Type) {
		out.Type = RuntimeError
	}
	if out.Message == "" {
		out.Message = "the tool failed and did not say why"
	}
	out.Message = proto.Shorten(out.Message, maxMessage)
	return &out
}

type failureError struct{ *Failure }

func (e failureError) Error() string { return e.Message }

// AsError returns a failure in the form of an error.
func AsError(f *Failure) error { return failureError{f} }

// FailureOf returns the failure that an error carries, or nil.
func FailureOf(err error) *Failure {
	var e failureError
	errors.As(err, &e)
	return e.Failure
}
