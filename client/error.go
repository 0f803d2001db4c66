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

// A DialError says that nothing answers at the host.
// It has a type of its own because the command can then say how to start a daemon; a connection
// that broke later is another matter.
type DialError struct {
	Host string
	Err  error
}

func (e *DialError) Error() string { return "no daemon answers at " + e.Host + ": " + reason(e.Err) }

// Unwrap gives the network's error.
func (e *DialError) Unwrap() error { return e.Err }

// reason is the innermost word of a network error: "connection refused", without the addresses
// that the message names already.
func reason(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// broken says what went wrong on the way to the daemon or back. Nil stays nil.
func (c *Client) broken(ctx context.Context, err error) error {
	var op *net.OpError
	var own *proto.Error
	var cert *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	// Before all else: whoever cancels closes the connection, and would read of a broken one.
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &own):
		return own // the body's reader said it
	case errors.As(err, &cert):
		return &UntrustedError{Host: c.Host(), Err: cert.Err}
	case errors.As(err, &op) && op.Op == "dial":
		return &DialError{Host: c.Host(), Err: op.Err}
	}
	// Where a websocket is made it is seen one layer below.
	var record tls.RecordHeaderError
	if errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/" {
		return proto.Errorf(proto.InvalidArgument, "", c.Host(), "the daemon at %s speaks plain HTTP; use http://%s",
			c.Host(), c.base.Host)
	}
	return proto.Errorf(proto.Unavailable, "", c.Host(), "the connection to the daemon at %s broke: %s", c.Host(),
		reason(err))
}

// An UntrustedError says that what answers at the host has a certificate that is not right.
// It is apart from DialError since trying again is no help, and neither is starting a daemon.
type UntrustedError struct {
	Host string
	Err  error
}

func (e *UntrustedError) Error() string {
	return "the daemon at " + e.Host + " is not trusted: " + e.Err.Error()
}

// Unwrap gives what is wrong with the certificate.
func (e *UntrustedError) Unwrap() error { return e.Err }

// maxErrorBody bounds what is read of an error's body.
// In bytes. Errors of the daemon are far shorter; what answers may be something else.
const maxErrorBody = 1 << 20

// An envelope is the error body of the native edge and, with a type in place of the code, of
// the Files API.
// Error is a pointer, so that a JSON answer of some other server is told from an error without
// words.
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

// failure turns an answer that is not a success into a *proto.Error.
func (c *Client) failure(res *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // half a body is no error of ours either
	path := ""
	if res.Request != nil {
		path = res.Request.URL.EscapedPath()
	}
	return c.failureOf(path, res.StatusCode, data)
}

// failureOf is failure for a body that was read already, of an answer to a request for the path.
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
	// The cause is in the daemon's log alone, under this ID.
	if e.Code == proto.Internal && env.RequestID != "" {
		e.Message += " (request " + env.RequestID + ")"
	}
	if e.Code == proto.NotFound {
		return missing(strings.TrimPrefix(path, c.base.EscapedPath()), e)
	}
	return e
}

// A MissingError is the daemon's NotFound, with what it is that does not exist: the daemon's own words are for
// whoever speaks HTTP.
type MissingError struct {
	Err  *proto.Error
	Kind string // the API's collection, such as "containers" or "tool_calls"
	Name string // in it
	In   string // what the collection is of, such as a container's ID; "" for most
}

func (e *MissingError) Error() string { return e.Err.Error() }

// Unwrap gives the daemon's error.
func (e *MissingError) Unwrap() error { return e.Err }

// missing tells by the error, and the path of the request, what does not exist. e stays as it is where they do not
// say: anything may answer 404.
func missing(path string, e *proto.Error) error {
	// What a request names in its body has an ID that tells its kind.
	for kind, prefix := range map[string]string{"containers": proto.ContainerPrefix, "files": proto.FilePrefix,
		"workspaces": proto.WorkspacePrefix} {
		if proto.ValidID(prefix, e.Item) {
			return &MissingError{Err: e, Kind: kind, Name: e.Item}
		}
	}
	// In "/v1/containers/ID/tool_calls/ID" it is either. The Files and Skills APIs name it in their words alone.
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

// quotes reports whether a message names something.
func quotes(message, name string) bool {
	return strings.Contains(message, "`"+name+"`") || strings.Contains(message, strconv.Quote(name))
}

// codeOf is the code that a status stands for where the body names none.
// codeOf decides the command's exit status, so a proxy's bare 503 must count as unavailable like
// the daemon's own.
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
