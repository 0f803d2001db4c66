package proto

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"time"
)

// A Code says what kind of thing went wrong. The set is small on purpose: an
// edge maps each code to its dialect's status in one table.
type Code string

// The codes. A new one needs a row in every edge's table.
const (
	InvalidArgument  Code = "invalid_argument"   // the request is wrong and will stay wrong
	Unauthenticated  Code = "unauthenticated"    // no API key, or not one of ours
	PermissionDenied Code = "permission_denied"  // known caller, forbidden act
	NotFound         Code = "not_found"          // no such item, or not this caller's
	MethodNotAllowed Code = "method_not_allowed" // the path is known, and does not take this HTTP method
	AlreadyExists    Code = "already_exists"     // the name is taken
	Conflict         Code = "conflict"           // the item is in a state that forbids this; it may pass
	Expired          Code = "expired"            // the item was there and its time is over
	TooLarge         Code = "too_large"          // over a size limit
	TooMany          Code = "too_many_requests"  // over a rate or concurrency limit; try later
	QuotaExceeded    Code = "quota_exceeded"     // over a storage quota; free something first
	TimedOut         Code = "deadline_exceeded"  // took longer than its limit
	Canceled         Code = "canceled"           // the caller went away or asked to stop
	Unavailable      Code = "unavailable"        // a part we depend on does not answer; try later
	Unsupported      Code = "unsupported"        // this build, host or image cannot do it
	Internal         Code = "internal"           // our fault
)

// An Error crosses guest, core and edges unchanged. Item names the thing the
// error is about as the caller knows it (an ID, a field, a path inside the
// container); Message says what is wrong and what to do, in one sentence, and
// never shows a path of the host.
type Error struct {
	Code Code   `json:"code"`
	Op   string `json:"op,omitempty"`
	// What the error is about: an ID, a field, or a path in the container.
	Item    string `json:"item,omitempty"`
	Message string `json:"message"`

	// When it makes sense to try again; also in the Retry-After header.
	RetryAfter int64 `json:"retry_after_seconds,omitempty"`
}

// After says when trying again makes sense, rounded up to whole seconds and at least one.
func (e *Error) After(d time.Duration) *Error {
	e.RetryAfter = max(1, int64(math.Ceil(d.Seconds())))
	return e
}

func (e *Error) Error() string {
	s := e.Message
	if s == "" {
		s = string(e.Code)
	}
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	return s
}

// Is lets errors.Is compare by code: errors.Is(err, &Error{Code: NotFound}).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Item == "" && t.Message == ""
}

// Errorf makes an Error. Op and item may be empty.
func Errorf(code Code, op, item, format string, args ...any) *Error {
	return &Error{Code: code, Op: op, Item: item, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes an Error with the code InvalidArgument. The item names what is wrong: a field, a query key or a header.
func Invalid(item, format string, args ...any) *Error {
	return Errorf(InvalidArgument, "", item, format, args...)
}

// CodeOf is the code of the first Error in err's chain. Context errors map to Canceled and TimedOut, a full disk of
// the daemon's own to Unavailable; anything else is Internal. A nil error has no code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case IsDiskFull(err):
		return Unavailable
	}
	return Internal
}

// IsDiskFull reports whether a file system had no room.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// AsError is the Error that may be shown to a caller: the one in err's chain, or one
// without detail where there is none, since an unknown error may name host paths.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	switch CodeOf(err) {
	case Canceled:
		return &Error{Code: Canceled, Message: "the request was canceled"}
	case TimedOut:
		return &Error{Code: TimedOut, Message: "the request took longer than its limit"}
	case Unavailable:
		return &Error{Code: Unavailable, Message: "the daemon's disk is full, so nothing new can be written down; " +
			"free space in its data directory and send the request again"}
	}
	return &Error{Code: Internal, Message: "internal error; the daemon's log has the details under this request's ID"}
}

// Shorten cuts a text to at most that many bytes of whole characters, and marks the cut.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
