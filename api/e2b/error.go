package e2b

import (
	"errors"
	"maps"
	"net/http"

	"berth/api"
	"berth/proto"
)

// statuses are those of errors. An expired sandbox is one that is not there.
var statuses = func() map[proto.Code]int {
	m := maps.Clone(api.PlainStatus)
	m[proto.Expired] = http.StatusNotFound
	m[proto.Unsupported] = http.StatusNotImplemented
	return m
}()

// dialect writes the errors of the control plane. Clients decide by code, which is the status.
var dialect = api.Dialect{Status: statuses, Retry: "Should-Retry", Body: func(f api.Failure) any {
	body := errorBody{Code: f.Status, Message: f.Err.Message}
	var c coded
	if errors.As(f.Cause, &c) {
		body.ErrorCode = c.code
	}
	return body
}}

// An errorBody is the body of every error.
type errorBody struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

// A coded error has an error_code for clients.
type coded struct {
	code string
	error
}

func (c coded) Unwrap() error { return c.error }
