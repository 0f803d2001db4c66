package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"berth/api"
	"berth/proto"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// A responseFilter is the http.ResponseWriter of the SDK. It holds back refusals of the SDK: they are plain text,
// which does not tell a client which message was wrong.
type responseFilter struct {
	http.ResponseWriter
	refusal *bytes.Buffer // nil: the SDK has accepted the message
}

// maxRefusal bounds how much of a refusal is kept, in bytes.
const maxRefusal = 1 << 10

func (l *responseFilter) WriteHeader(status int) {
	if status == http.StatusBadRequest && strings.HasPrefix(l.Header().Get("Content-Type"), "text/plain") {
		l.refusal = &bytes.Buffer{}
		return
	}
	l.ResponseWriter.WriteHeader(status)
}

// Write removes the name of the event with the position for reconnecting. The protocol has no such name, and clients
// warn about unknown ones.
func (l *responseFilter) Write(p []byte) (int, error) {
	if l.refusal != nil {
		l.refusal.Write(p[:min(len(p), maxRefusal-l.refusal.Len())])
		return len(p), nil
	}
	rest := bytes.TrimPrefix(p, []byte("event: prime\n"))
	n, err := l.ResponseWriter.Write(rest)
	return n + len(p) - len(rest), err
}

// Unwrap is for http.ResponseController.
func (l *responseFilter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// answer replaces a refusal. An unknown notification is accepted, as the protocol wants. A request gets an error with
// its ID, with status 200, since clients do not read other answers.
func (l *responseFilter) answer(body []byte) error {
	text := strings.TrimSpace(l.refusal.String())
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	valid, unknown := json.Valid(body), strings.HasSuffix(text, " unsupported")
	_ = json.Unmarshal(body, &m) // without a message both stay empty
	if unknown && m.ID == nil {
		l.ResponseWriter.WriteHeader(http.StatusAccepted)
		return nil
	}
	a := messageError{id: idOf(body), code: jsonrpc.CodeInvalidRequest, error: proto.Errorf(proto.InvalidArgument, "",
		"body", "this is no message of the protocol: %s", text)}
	switch {
	case !valid:
		a.code = jsonrpc.CodeParseError
	case m.ID == nil:
	case unknown:
		a.code, a.error = jsonrpc.CodeMethodNotFound, api.WithStatus(http.StatusOK, proto.Errorf(proto.InvalidArgument,
			"", "method", "there is no method %.80q here", m.Method))
	case strings.HasSuffix(text, `missing required "params"`):
		a.code, a.error = jsonrpc.CodeInvalidParams, api.WithStatus(http.StatusOK, proto.Errorf(proto.InvalidArgument,
			"", "params", "the method %.80q needs params", m.Method))
	}
	return a
}
