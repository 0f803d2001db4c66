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

// A fault is what an error envelope says.
type fault struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// faultTypes are the words for statuses.
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

// statusOverloaded is the dialect's own.
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

// envelope is the body of an error, and the data of an error event.
func (f fault) envelope() []byte {
	text, _ := json.Marshal(struct { // strings always can be written
		Type  string `json:"type"`
		Error fault  `json:"error"`
	}{"error", f})
	return text
}

// response is an answer of ours in place of an upstream's.
func (f fault) response(status int) *http.Response {
	return jsonResponse(status, http.Header{}, f.envelope())
}

// jsonResponse is an answer that is all there.
func jsonResponse(status int, h http.Header, text []byte) *http.Response {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}
}

// maxFault bounds the body of an error that is read, in bytes.
const maxFault = 1 << 20

// failed reads an answer that is an error, which read knows in the upstream's dialect, and gives it in ours. One that
// nobody can read, such as a proxy's page, is shown as text.
func (u *Upstream) failed(res *http.Response, read func(text []byte) (envelope []byte, ok bool)) *http.Response {
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxFault)) // what came of it is shown
	_ = res.Body.Close()
	envelope, ok := read(text)
	if !ok {
		envelope = newFault(res.StatusCode, "The upstream %s answered %d: %s", u.cfg.Name, res.StatusCode,
			plain(text)).envelope()
	}
	return jsonResponse(res.StatusCode, res.Header, envelope)
}

// messagesError keeps an envelope of the Messages dialect byte for byte.
func messagesError(text []byte) ([]byte, bool) {
	var e struct {
		Type  string
		Error fault
	}
	ok := json.Unmarshal(text, &e) == nil && e.Type == "error" && e.Error.Type != ""
	return text, ok
}

// plain is a text as a message may repeat it.
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
