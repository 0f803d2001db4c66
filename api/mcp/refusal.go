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

// A listener is the answer that the SDK gives to a request. It holds back what the SDK says of a message that it does
// not take: that is plain text, by which no client knows what was wrong with which of its messages.
type responseFilter struct {
	http.ResponseWriter
	refusal *bytes.Buffer // nil: it has taken the message
}

// maxRefusal is the most that is kept of what it says, in bytes.
const maxRefusal = 1 << 10

func (l *responseFilter) WriteHeader(status int) {
	if status == http.StatusBadRequest && strings.HasPrefix(l.Header().Get("Content-Type"), "text/plain") {
		l.refusal = &bytes.Buffer{}
		return
	}
	l.ResponseWriter.WriteHeader(status)
}

// Write leaves out the name of the event by which a client learns where to come back to. The protocol gives it none,
// and clients warn of one they do not know.
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

// answer is what a client is told instead of a refusal: a notification that is not known is nothing to it, as the
// protocol has it, and to a request there is an error by its ID. That one comes as an answer and not as a failure of
// the transport: clients look into no other.
func (l *responseFilter) answer(body []byte) error {
	text := strings.TrimSpace(l.refusal.String())
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	valid, unknown := json.Valid(body), strings.HasSuffix(text, " unsupported")
	_ = json.Unmarshal(body, &m) // what is no message has neither
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
