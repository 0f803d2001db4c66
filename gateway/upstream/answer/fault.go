package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode"
)

// A Fault is the content of an error envelope.
type Fault struct {
	Type    string   `json:"type"`
	Message string   `json:"message"`
	Details *Details `json:"details,omitempty"`
}

// Details tell programs more about an error.
type Details struct {
	ErrorCode string `json:"error_code"` // such as "thread_unsupported_request", which SDKs act on
}

// faultTypes maps HTTP statuses to error types of the Messages dialect.
var faultTypes = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusPaymentRequired:       "billing_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusConflict:              "conflict_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusGatewayTimeout:        "timeout_error",
	http.StatusServiceUnavailable:    "overloaded_error",
	statusOverloaded:                 "overloaded_error",
}

// statusOverloaded is a status that only the Messages dialect defines.
const statusOverloaded = 529

// NewFault returns the error for an HTTP status.
func NewFault(status int, format string, args ...any) Fault {
	f := Fault{Type: faultTypes[status], Message: fmt.Sprintf(format, args...)}
	if f.Type == "" && status < http.StatusInternalServerError {
		f.Type = "invalid_request_error"
	} else if f.Type == "" {
		f.Type = "api_error"
	}
	return f
}

// StatusOf returns the HTTP status of an error type.
func StatusOf(kind string) int {
	switch kind {
	case "invalid_request_error":
		return http.StatusBadRequest
	case "overloaded_error":
		return statusOverloaded
	}
	for status, name := range faultTypes {
		if name == kind {
			return status
		}
	}
	return http.StatusInternalServerError
}

// Envelope returns the body of an error answer, which is also the data of an error event.
func (f Fault) Envelope() []byte {
	text, _ := json.Marshal(struct { // cannot fail: all members are strings
		Type  string `json:"type"`
		Error Fault  `json:"error"`
	}{"error", f})
	return text
}

// Response returns an error answer that berth sends in place of the upstream's answer.
func (f Fault) Response(status int) *http.Response {
	return JSONResponse(status, http.Header{}, f.Envelope())
}

// JSONResponse returns an answer with a complete JSON body.
func JSONResponse(status int, h http.Header, text []byte) *http.Response {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}
}

// OneLine returns text on one line, without control characters, and short enough for an error message.
func OneLine(text []byte) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(string(text), ""), func(r rune) bool {
		return unicode.IsSpace(r) ||
			unicode.IsControl(r)
	})
	if len(words) == 0 {
		return "(nothing more)"
	}
	return Short(strings.Join(words, " "))
}

// Short shortens text for an error message.
func Short(text string) string {
	if len(text) > 200 {
		return strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
