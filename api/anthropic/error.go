package anthropic

import (
	"cmp"
	"errors"
	"net/http"

	"berth/api"
	"berth/gateway"
	"berth/proto"
)

// statusOverloaded is the dialect's own for what passes with time.
const statusOverloaded = 529

// dialect renders errors as the hosted service does.
// An expired file is a 404 with an error_code here, where the native edge says 410. A quota is a
// 400 with an error_code, since a 429 would make them try again, and in vain.
var dialect = api.Dialect{
	Body: envelope,
	Status: map[proto.Code]int{
		proto.InvalidArgument:  http.StatusBadRequest,
		proto.Unauthenticated:  http.StatusUnauthorized,
		proto.PermissionDenied: http.StatusForbidden,
		proto.NotFound:         http.StatusNotFound,
		proto.AlreadyExists:    http.StatusConflict,
		proto.Conflict:         http.StatusConflict,
		proto.Expired:          http.StatusNotFound,
		proto.TooLarge:         http.StatusRequestEntityTooLarge,
		proto.TooMany:          http.StatusTooManyRequests,
		proto.QuotaExceeded:    http.StatusBadRequest,
		proto.TimedOut:         http.StatusGatewayTimeout,
		proto.Canceled:         499, // the client has gone; for the log
		proto.Unavailable:      statusOverloaded,
		proto.Unsupported:      http.StatusBadRequest,
		proto.Internal:         http.StatusInternalServerError,
	},
}

// errorTypes are the words of the envelope. A status without one is a mistake of the request below 500,
// and ours from there on.
var errorTypes = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusConflict:              "conflict_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusInternalServerError:   "api_error",
	http.StatusGatewayTimeout:        "timeout_error",
	statusOverloaded:                 "overloaded_error",
}

// errorCodes are the details that SDKs make classes of.
var errorCodes = map[proto.Code]string{
	proto.Expired:       "file_expired",
	proto.QuotaExceeded: "storage_quota_exceeded",
}

// A coded error has an error_code that its proto.Code does not imply.
type coded struct {
	code string
	err  *proto.Error
}

func (c coded) Error() string { return c.err.Error() }

// Unwrap lets the server find the proto.Error, which decides the status.
func (c coded) Unwrap() error { return c.err }

// errorDetails are left out where there is neither.
type errorDetails struct {
	ErrorCode string              `json:"error_code,omitempty"`
	Container *proto.ContainerRef `json:"container,omitempty"` // that has the work of a turn that was interrupted
}

type errorBody struct {
	Type    string        `json:"type"`
	Message string        `json:"message"`
	Details *errorDetails `json:"details,omitempty"`
}

// envelope writes the body of every error, whatever it comes from.
func envelope(f api.Failure) any {
	body := errorBody{typeOf(f.Status), f.Err.Message, detailsOf(f)}
	var i *gateway.Interruption
	if errors.As(f.Cause, &i) && i.Kind != "" {
		body.Type = i.Kind
	}
	return struct {
		Type      string    `json:"type"`
		Error     errorBody `json:"error"`
		RequestID string    `json:"request_id"`
	}{"error", body, f.RequestID}
}

func typeOf(status int) string {
	if status < 500 {
		return cmp.Or(errorTypes[status], "invalid_request_error")
	}
	return cmp.Or(errorTypes[status], "api_error")
}

// detailsOf prefers the code that a handler gave over the one its proto.Code implies.
func detailsOf(f api.Failure) *errorDetails {
	d := errorDetails{ErrorCode: errorCodes[f.Err.Code]}
	var c coded
	var refusal *gateway.Refusal
	var i *gateway.Interruption
	// The cause and not f.Err: f.Err is only the proto.Error in it.
	switch {
	case errors.As(f.Cause, &c):
		d.ErrorCode = c.code
	case errors.As(f.Cause, &refusal):
		d.ErrorCode = refusal.Code
	case errors.As(f.Cause, &i):
		d = errorDetails{ErrorCode: i.Code, Container: i.Container}
	}
	if d == (errorDetails{}) {
		return nil
	}
	return &d
}
