package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"berth/proto"
)

// A Dialect is how an edge writes errors.
type Dialect struct {
	Status map[proto.Code]int // by code; a code without a status is a 500
	Body   func(Failure) any  // the JSON body

	// Page returns a page of HTML for a browser, which asks for one; nil: the body is always JSON
	Page func(Failure) []byte

	// Retry names a header that tells clients with true or false whether to send a request that failed again; "": none
	Retry string
}

// A Failure is one failed request.
type Failure struct {
	Status    int
	RequestID string
	Err       *proto.Error // safe to show to the client
	Cause     error        // the error of the handler, for edges with error codes of their own
}

// A statusError has a status that does not follow from its code.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// WithStatus gives an error a status other than that of its code, such as 416 for a range.
func WithStatus(status int, err error) error { return statusError{status, err} }

// statusCanceled appears in logs only: the client has gone.
const statusCanceled = 499

// PlainStatus is the status of each code in the plain dialect.
var PlainStatus = map[proto.Code]int{
	proto.InvalidArgument:  http.StatusBadRequest,
	proto.Unauthenticated:  http.StatusUnauthorized,
	proto.PermissionDenied: http.StatusForbidden,
	proto.NotFound:         http.StatusNotFound,
	proto.MethodNotAllowed: http.StatusMethodNotAllowed,
	proto.AlreadyExists:    http.StatusConflict,
	proto.Conflict:         http.StatusConflict,
	proto.Expired:          http.StatusGone,
	proto.TooLarge:         http.StatusRequestEntityTooLarge,
	proto.TooMany:          http.StatusTooManyRequests,
	proto.QuotaExceeded:    http.StatusInsufficientStorage,
	proto.TimedOut:         http.StatusGatewayTimeout,
	proto.Canceled:         statusCanceled,
	proto.Unavailable:      http.StatusServiceUnavailable,
	proto.Unsupported:      http.StatusNotImplemented,
	proto.Internal:         http.StatusInternalServerError,
}

// Plain is the dialect of the native edge and of paths without an edge: {"error": proto.Error, "request_id": …}.
var Plain = Dialect{Status: PlainStatus, Body: func(f Failure) any {
	return struct {
		Error     *proto.Error `json:"error"`
		RequestID string       `json:"request_id"`
	}{f.Err, f.RequestID}
}}

// Failure describes how the request with this ID failed.
func (d Dialect) Failure(id string, err error) Failure {
	e := proto.AsError(err)
	f := Failure{Status: cmp.Or(d.Status[e.Code], http.StatusInternalServerError), RequestID: id, Err: e, Cause: err}
	var se statusError
	if errors.As(err, &se) {
		f.Status = se.status
	}
	return f
}

// fail writes an error. Nothing else does.
func (s *Server) fail(x *exchange, err error) {
	edge := x.edge
	if edge == nil {
		edge = x.table.edgeOf(x.r)
	}
	f := edge.Dialect.Failure(x.id, err)
	f.Err = s.hideIn(x, f.Err)
	h := x.Header()
	for _, name := range []string{"Content-Length", "Content-Disposition", "Content-Encoding", "Accept-Ranges", "Etag",
		"Last-Modified", "Cache-Control", "Trailer"} {
		h.Del(name) // set by the handler for the answer that failed
	}
	f.setRetryHeaders(h)
	if s.cfg.Challenge != nil {
		if challenge := s.cfg.Challenge(x.r.URL.Path, f.Err); challenge != "" {
			h.Set("WWW-Authenticate", challenge)
		}
	}
	if name := edge.Dialect.Retry; name != "" {
		h.Set(name, strconv.FormatBool(f.passes()))
	}
	if err := write(x, edge.Dialect, f); err != nil {
		x.err = errors.Join(x.err, err)
	}
}

// write writes a failure as a page to a browser, and as JSON to other clients. A dialect without pages has one for
// paths that no route serves, where people look first.
func write(x *exchange, d Dialect, f Failure) error {
	page := d.Page
	if page == nil && x.unrouted && (x.r.Method == http.MethodGet || x.r.Method == http.MethodHead) {
		x.Header().Add("Vary", "Accept")
		page = x.table.lostPage
	}
	if page == nil || !prefersPage(x.r) {
		return JSON(x, f.Status, d.Body(f))
	}
	body, h := page(f), x.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	x.WriteHeader(f.Status)
	_, err := x.Write(body)
	return err
}

// hide replaces the secrets of the container that the path of the request names.
func (s *Server) hide(x *exchange, text string) string {
	if s.cfg.Hide == nil || x.container == "" {
		return text
	}
	return s.cfg.Hide(x.container, text)
}

// hideIn hides secrets in an error, which may repeat a path or a name from the client.
func (s *Server) hideIn(x *exchange, err *proto.Error) *proto.Error {
	out := *err
	out.Message, out.Item = s.hide(x, err.Message), s.hide(x, err.Item)
	return &out
}

// maxHeededRetry is the longest wait that SDKs honor, in seconds. After a longer one they would come back too soon.
const maxHeededRetry = 60

// passes reports whether what failed may succeed later.
func (f Failure) passes() bool { return f.Err.Code == proto.TooMany || f.Err.Code == proto.Unavailable }

// setRetryHeaders tells clients whether to retry. SDKs retry 408, 409, 429 and 5xx by themselves. Only errors that
// pass with time are worth it, since a repeated POST may do its work twice.
func (f Failure) setRetryHeaders(h http.Header) {
	passes := f.passes()
	switch wait := f.Err.RetryAfter; {
	case wait > 0:
		h.Set("Retry-After", strconv.FormatInt(wait, 10))
		if wait > maxHeededRetry {
			h.Set("X-Should-Retry", "false")
		}
	case passes && h.Get("Retry-After") == "":
		h.Set("Retry-After", "1")
	case !passes && (f.Status >= 500 || f.Status == http.StatusConflict || f.Status == http.StatusRequestTimeout):
		h.Set("X-Should-Retry", "false")
	}
	switch f.Err.Code {
	case proto.Unauthenticated:
		h.Set("WWW-Authenticate", "Bearer")
	case proto.TooLarge:
		h.Set("Connection", "close") // instead of reading the rest of the refused body
	}
}

// JSON writes v as a JSON answer.
func JSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err = w.Write(body)
	return err
}

// Shortened cuts and cleans a string of the client for an error. 80 bytes are enough to recognize it.
func Shortened(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), 80)], "")
}
