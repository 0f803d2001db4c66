package anthropic

import (
	"cmp"
	"errors"
	"net/http"

	"berth/api"
	"berth/gateway"
	"berth/proto"
)

// statusOverloaded is the hosted service's status for conditions that pass with time.
const statusOverloaded = 529

// dialect writes errors as the hosted service does. An expired file is a 404 with an error_code, where the native
// edge answers 410. A full quota is a 400 with an error_code, since SDKs would retry a 429 in vain.
var dialect = api.Dialect{
	Body: func(f api.Failure) any { return envelopeOf(f) },
	Status: map[proto.Code]int{
		proto.InvalidArgument:  http.StatusBadRequest,
		proto.Unauthenticated:  http.StatusUnauthorized,
		proto.PermissionDenied: http.StatusForbidden,
		proto.NotFound:         http.StatusNotFound,
		proto.MethodNotAllowed: http.StatusMethodNotAllowed,
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

// errorTypes are the types in the envelope. Other statuses are invalid_request_error below 500 and api_error from
// there.
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

// errorCodes are the codes for which SDKs have error classes.
var errorCodes = map[proto.Code]string{
	proto.Expired:       "file_expired",
	proto.QuotaExceeded: "storage_quota_exceeded",
}

// A coded error has an error_code that does not follow from its proto.Code.
type coded struct {
	code string
	err  *proto.Error
}

func (c coded) Error() string { return c.err.Error() }

// Unwrap gives the server the proto.Error, which decides the status.
func (c coded) Unwrap() error { return c.err }

// errorDetails are left out if both fields are empty.
type errorDetails struct {
	ErrorCode string              `json:"error_code,omitempty"`
	Container *proto.ContainerRef `json:"container,omitempty"` // holds the work of the interrupted turn
}

type errorBody struct {
	Type    string        `json:"type"`
	Message string        `json:"message"`
	Details *errorDetails `json:"details,omitempty"`
}

// An envelope is the body of every error.
type envelope struct {
	Type      string    `json:"type" schema:"const=error"`
	Error     errorBody `json:"error"`
	RequestID string    `json:"request_id"`
}

func envelopeOf(f api.Failure) envelope {
	body := errorBody{typeOf(f.Status), f.Err.Message, detailsOf(f)}
	var i *gateway.Interruption
	if errors.As(f.Cause, &i) && i.Kind != "" {
		body.Type = i.Kind
	}
	return envelope{"error", body, f.RequestID}
}

func typeOf(status int) string {
	if status < 500 {
		return cmp.Or(errorTypes[status], "invalid_request_error")
	}
	return cmp.Or(errorTypes[status], "api_error")
}

// detailsOf prefers the code of a handler to the one of the proto.Code.
func detailsOf(f api.Failure) *errorDetails {
	d := errorDetails{ErrorCode: errorCodes[f.Err.Code]}
	var c coded
	var refusal *gateway.Refusal
	var i *gateway.Interruption
	// Look at the cause, since f.Err is only the proto.Error in it.
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
