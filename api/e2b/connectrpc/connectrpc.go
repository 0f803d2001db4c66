// Package connectrpc speaks the Connect protocol with JSON, as far as E2B's clients use it: unary calls, streams of the
// server and streams of the client, over HTTP/1.1 or HTTP/2, without compression.
//
// Handlers have the types of messages as they are in JSON: 64-bit integers as strings, bytes in base64, fields with
// their zero values left out. Package envd has the handlers.
package connectrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"berth/api"
	"berth/proto"
)

// A Code is an error code of the protocol.
type Code string

// The codes.
const (
	InvalidArgument    Code = "invalid_argument"
	Unauthenticated    Code = "unauthenticated"
	NotFound           Code = "not_found"
	AlreadyExists      Code = "already_exists"
	ResourceExhausted  Code = "resource_exhausted"
	FailedPrecondition Code = "failed_precondition"
	Unavailable        Code = "unavailable"
	DeadlineExceeded   Code = "deadline_exceeded"
	Canceled           Code = "canceled"
	Unimplemented      Code = "unimplemented"
	Internal           Code = "internal"
	Unknown            Code = "unknown"
	PermissionDenied   Code = "permission_denied"
)

// statuses are the HTTP statuses of the codes, for unary calls.
var statuses = map[Code]int{
	InvalidArgument: http.StatusBadRequest, Unauthenticated: http.StatusUnauthorized, NotFound: http.StatusNotFound,
	AlreadyExists: http.StatusConflict, ResourceExhausted: http.StatusTooManyRequests,
	FailedPrecondition: http.StatusBadRequest, Unavailable: http.StatusServiceUnavailable,
	DeadlineExceeded: http.StatusGatewayTimeout, Canceled: 499, Unimplemented: http.StatusNotImplemented,
	PermissionDenied: http.StatusForbidden,
}

// codes are the codes of the core's errors.
var codes = map[proto.Code]Code{
	proto.InvalidArgument: InvalidArgument, proto.Unauthenticated: Unauthenticated,
	proto.PermissionDenied: PermissionDenied, proto.NotFound: NotFound, proto.AlreadyExists: AlreadyExists,
	proto.Conflict: FailedPrecondition, proto.Expired: NotFound, proto.TooLarge: InvalidArgument,
	proto.TooMany: ResourceExhausted, proto.QuotaExceeded: ResourceExhausted, proto.TimedOut: DeadlineExceeded,
	proto.Canceled: Canceled, proto.Unavailable: Unavailable, proto.Unsupported: Unimplemented,
	proto.MethodNotAllowed: Unimplemented,
}

// An Error is an error with a code that does not follow from that of the core.
type Error struct {
	Code Code
	error
}

// Unwrap returns the error with its code in the core.
func (e Error) Unwrap() error { return e.error }

// Errorf returns an error with a code. what is the code in the core, for the log.
func Errorf(code Code, what proto.Code, format string, args ...any) error {
	return Error{code, proto.Errorf(what, "", "", format, args...)}
}

// CodeOf returns the code of an error.
func CodeOf(err error) Code {
	var e Error
	if errors.As(err, &e) {
		return e.Code
	}
	if code, ok := codes[proto.CodeOf(err)]; ok {
		return code
	}
	return Internal
}

// A Body is the JSON of an error.
type Body struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// A Failure is an error of a unary call, which its Body describes to the client.
type Failure struct{ error }

// Unwrap returns the cause.
func (f Failure) Unwrap() error { return f.error }

// Shape returns the body of the answer. The message comes from the server, which has hidden secrets in it.
func (f Failure) Shape(message string) any { return Body{CodeOf(f.error), message} }

// An abort is an error that breaks a stream off.
type abort struct{ error }

func (a abort) Unwrap() error { return a.error }

// Abort returns an error that breaks a stream off: the client must not take what came for all.
func Abort(err error) error { return abort{err} }

// Bounds of messages, in bytes.
const (
	maxUnary = 64 << 20
	maxFrame = 16 << 20
)

const (
	unaryType  = "application/json"
	streamType = "application/connect+json"
	flagEnd    = 2
	flagPacked = 1
	headBytes  = 5
)

// Timeout returns the time limit of a request, or 0 if it has none.
func Timeout(r *http.Request) (time.Duration, error) {
	text := r.Header.Get("Connect-Timeout-Ms")
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 0 || len(text) > 10 {
		return 0, proto.Invalid("Connect-Timeout-Ms", "Connect-Timeout-Ms must be a whole number of at most 10 digits")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// Unary serves a call of one message and one answer.
func Unary[In, Out any](w http.ResponseWriter, r *http.Request, fn func(context.Context, In) (Out, error)) error {
	err := unary(w, r, fn)
	if err == nil {
		return nil
	}
	code := CodeOf(err)
	status, ok := statuses[code]
	if !ok {
		status = http.StatusInternalServerError
	}
	return api.WithStatus(status, Failure{err})
}

func unary[In, Out any](w http.ResponseWriter, r *http.Request, fn func(context.Context, In) (Out, error)) error {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxUnary))
	if err != nil {
		return proto.Invalid("body", "reading the message: %v", err)
	}
	var in In
	if err := decode(data, &in); err != nil {
		return err
	}
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return err
	}
	defer cancel()
	out, err := fn(ctx, in)
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, out)
}

// withTimeout returns a context with the time limit of a request.
func withTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	limit, err := Timeout(r)
	if err != nil || limit == 0 {
		ctx, cancel := context.WithCancel(r.Context())
		return ctx, cancel, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	return ctx, cancel, nil
}

func decode(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return proto.Invalid("body", "the message is not valid: %v", err)
	}
	return nil
}

// ReadFrame reads one message of a stream. The error is io.EOF at its end.
func ReadFrame(r io.Reader, v any) error {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return proto.Invalid("body", "the stream ends within a message")
		}
		return err
	}
	n := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0]&flagPacked != 0:
		return proto.Invalid("body", "messages must not be compressed")
	case n > maxFrame:
		return proto.Errorf(proto.TooLarge, "", "body", "a message has %d bytes; %d is the limit", n, maxFrame)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return proto.Invalid("body", "the stream ends within a message")
	}
	if head[0]&flagEnd != 0 {
		return io.EOF
	}
	return decode(data, v)
}

// AppendFrame appends a frame with a message.
func AppendFrame(b []byte, flags byte, message []byte) []byte {
	b = append(b, flags)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	return append(b, message...)
}

// endFrame returns the last frame of a stream.
func endFrame(err error) []byte {
	var end struct {
		Error *Body `json:"error,omitempty"`
	}
	if err != nil {
		end.Error = &Body{CodeOf(err), proto.AsError(err).Message}
	}
	data, _ := json.Marshal(end) // two strings
	return AppendFrame(nil, flagEnd, data)
}

// ClientStream serves a stream of messages with one answer. each is called for every message.
func ClientStream[In, Out any](w http.ResponseWriter, r *http.Request, each func(In) error, out Out) error {
	w.Header().Set("Content-Type", streamType)
	err := readAll(r.Body, each)
	var answer []byte
	if err == nil {
		data, wrong := json.Marshal(out)
		if wrong != nil {
			return fmt.Errorf("encoding an answer: %w", wrong)
		}
		answer = AppendFrame(nil, 0, data)
	}
	_, failed := w.Write(append(answer, endFrame(err)...))
	return failed
}

func readAll[In any](r io.Reader, each func(In) error) error {
	for {
		var in In
		err := ReadFrame(r, &in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(in)
		}
		if err != nil {
			return err
		}
	}
}
