package upstream

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

// A fault is the content of an error envelope.
type fault struct {
	Type    string `json:"type"`
	Message string `json:"message"`
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

func newFault(status int, format string, args ...any) fault {
	f := fault{faultTypes[status], fmt.Sprintf(format, args...)}
	if f.Type == "" && status < http.StatusInternalServerError {
		f.Type = "invalid_request_error"
	} else if f.Type == "" {
		f.Type = "api_error"
	}
	return f
}

// envelope returns the body of an error answer, which is also the data of an error event.
func (f fault) envelope() []byte {
	text, _ := json.Marshal(struct { // cannot fail: all members are strings
		Type  string `json:"type"`
		Error fault  `json:"error"`
	}{"error", f})
	return text
}

// response returns an error answer that berth sends in place of the upstream's answer.
func (f fault) response(status int) *http.Response {
	return jsonResponse(status, http.Header{}, f.envelope())
}

// jsonResponse returns an answer with a complete JSON body.
func jsonResponse(status int, h http.Header, text []byte) *http.Response {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}
}

// plain returns text on one line, without control characters, and short enough for an error message.
func plain(text []byte) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(string(text), ""), func(r rune) bool {
		return unicode.IsSpace(r) ||
			unicode.IsControl(r)
	})
	if len(words) == 0 {
		return "(nothing more)"
	}
	return short(strings.Join(words, " "))
}

// short shortens text for an error message.
func short(text string) string {
	if len(text) > 200 {
		return strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
