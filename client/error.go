package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"berth/proto"
)

// A DialError says that no server answers at the host. It is a type of its own because the caller can then start a
// daemon. A connection that broke later is a different error.
type DialError struct {
	Host string
	Err  error
}

func (e *DialError) Error() string { return "no daemon answers at " + e.Host + ": " + reason(e.Err) }

// Unwrap returns the network's error.
func (e *DialError) Unwrap() error { return e.Err }

// reason returns the innermost message of a network error, such as "connection refused". The outer ones repeat
// addresses.
func reason(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// broken converts an error of the connection into one for callers. nil stays nil.
func (c *Client) broken(ctx context.Context, err error) error {
	var op *net.OpError
	var own *proto.Error
	var cert *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	// First: cancelling closes the connection, and would otherwise be reported as a broken one.
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &own):
		return own // from the reader of the body
	case errors.As(err, &cert):
		return &UntrustedError{Host: c.Host(), Err: cert.Err}
	case errors.As(err, &op) && op.Op == "dial":
		return &DialError{Host: c.Host(), Err: op.Err}
	}
	// For a websocket, the error is one layer below.
	var record tls.RecordHeaderError
	if errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/" {
		return proto.Errorf(proto.InvalidArgument, "", c.Host(), "the daemon at %s speaks plain HTTP; use http://%s",
			c.Host(), c.base.Host)
	}
	return brokenError{&proto.Error{Code: proto.Unavailable, Item: c.Host(), Message: "the connection to the daemon " +
		"at " + c.Host() + " broke: " + reason(err)}}
}

// An UntrustedError says that the server at the host has an invalid or untrusted certificate. Neither retrying nor
// starting a daemon helps, so it is not a DialError.
type UntrustedError struct {
	Host string
	Err  error
}

func (e *UntrustedError) Error() string {
	return "the daemon at " + e.Host + " is not trusted: " + e.Err.Error()
}

// Unwrap returns the error of the certificate's verification.
func (e *UntrustedError) Unwrap() error { return e.Err }

// maxErrorBody bounds how much of an error's body is read, in bytes. Errors of the daemon are far shorter, but
// another server may answer.
const maxErrorBody = 1 << 20

// An envelope is the error body of the native edge. The Files API has a type in place of the code. Error is a
// pointer, to tell other servers' JSON from an error without a message.
type envelope struct {
	Error *struct {
		Code    proto.Code `json:"code"`
		Op      string     `json:"op"`
		Item    string     `json:"item"`
		Message string     `json:"message"`
		Retry   int64      `json:"retry_after_seconds"`
	} `json:"error"`
	RequestID string `json:"request_id"`
}

// failure converts an answer that is not a success into a *proto.Error.
func (c *Client) failure(res *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // a truncated body is handled like any other
	path := ""
	if res.Request != nil {
		path = res.Request.URL.EscapedPath()
	}
	return c.failureOf(path, res.StatusCode, data)
}

// failureOf is failure for a body that was already read. path is the path of the request.
func (c *Client) failureOf(path string, status int, data []byte) error {
	// net/http's own words
	if status == http.StatusBadRequest && bytes.Contains(data, []byte("HTTP request to an HTTPS server")) {
		return proto.Errorf(proto.InvalidArgument, "", c.Host(), "the daemon at %s speaks HTTPS; use https://%s",
			c.Host(), c.base.Host)
	}
	var env envelope
	if err := json.Unmarshal(data, &env); err != nil || env.Error == nil || env.Error.Message == "" {
		return proto.Errorf(codeOf(status), "", c.Host(), "%s answered %d %s; is it a berth daemon?", c.Host(), status,
			http.StatusText(status))
	}
	e := &proto.Error{Code: env.Error.Code, Op: env.Error.Op, Item: env.Error.Item, Message: env.Error.Message,
		RetryAfter: env.Error.Retry}
	if e.Code == "" {
		e.Code = codeOf(status)
	}
	// Only the daemon's log has the cause, under this ID.
	if e.Code == proto.Internal && env.RequestID != "" {
		e.Message += " (request " + env.RequestID + ")"
	}
	if e.Code == proto.NotFound {
		return missing(strings.TrimPrefix(path, c.base.EscapedPath()), e)
	}
	return e
}

// A MissingError is the daemon's NotFound error, with the kind and name of what does not exist.
type MissingError struct {
	Err  *proto.Error
	Kind string // the API's collection, such as "containers" or "tool_calls"
	Name string // name or ID in the collection
	In   string // what the collection is of, such as a container's ID; "" for most
}

func (e *MissingError) Error() string { return e.Err.Error() }

// Unwrap returns the daemon's error.
func (e *MissingError) Unwrap() error { return e.Err }

// missing finds out what does not exist, from the error and the path of the request. If it cannot, it returns e: any
// server may answer 404.
func missing(path string, e *proto.Error) error {
	// For an item of the request's body, the prefix of its ID tells the kind.
	for kind, prefix := range map[string]string{"containers": proto.ContainerPrefix, "files": proto.FilePrefix,
		"workspaces": proto.WorkspacePrefix} {
		if proto.ValidID(prefix, e.Item) {
			return &MissingError{Err: e, Kind: kind, Name: e.Item}
		}
	}
	// In "/v1/containers/ID/tool_calls/ID" either may be missing. The Files and Skills APIs name it only in the
	// message.
	parts := strings.Split(strings.TrimPrefix(path, "/v1/"), "/")
	for i := range parts {
		parts[i], _ = url.PathUnescape(parts[i])
	}
	for at := len(parts)/2*2 - 2; at >= 0; at -= 2 {
		name := parts[at+1]
		if name == "" || e.Item != name && (e.Item != "" || !quotes(e.Message, name)) {
			continue
		}
		m := &MissingError{Err: e, Kind: parts[at], Name: name}
		if at > 0 {
			m.In = parts[at-1]
		}
		return m
	}
	return e
}

// quotes reports whether a message quotes a name.
func quotes(message, name string) bool {
	return strings.Contains(message, "`"+name+"`") || strings.Contains(message, strconv.Quote(name))
}

// codeOf returns the code for a status if the body has none. The code decides the command's exit status, so a proxy's
// 503 has to count as unavailable like the daemon's own.
func codeOf(status int) proto.Code {
	codes := map[int]proto.Code{
		http.StatusBadRequest: proto.InvalidArgument, http.StatusUnauthorized: proto.Unauthenticated,
		http.StatusForbidden: proto.PermissionDenied, http.StatusNotFound: proto.NotFound,
		http.StatusConflict: proto.Conflict,
		http.StatusGone:     proto.Expired, http.StatusRequestEntityTooLarge: proto.TooLarge,
		http.StatusTooManyRequests:     proto.TooMany,
		http.StatusInsufficientStorage: proto.QuotaExceeded, http.StatusGatewayTimeout: proto.TimedOut,
		http.StatusUnprocessableEntity: proto.Unsupported, http.StatusNotImplemented: proto.Unsupported,
	}
	if code, ok := codes[status]; ok {
		return code
	}
	if status == http.StatusServiceUnavailable || status == http.StatusBadGateway {
		return proto.Unavailable
	}
	return proto.Internal
}
