package mcp

import (
	"encoding/json"
	"net/http"
	"strings"

	"berth/api"
	"berth/proto"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxRefusal bounds how much of a refusal of the SDK is kept, in bytes. Refusals are plain text, which does not tell a
// client which message was wrong.
const maxRefusal = 1 << 10

// answer replaces a refusal. An unknown notification is accepted, as the protocol wants. A request gets an error with
// its ID. Clients of sessions do not read an answer to a request whose status is not 200; the protocol without sessions
// has statuses of its own.
func (l *answerWriter) answer(body []byte, single bool) error {
	text := strings.TrimSpace(l.refusal.String())
	valid, unknown := json.Valid(body), strings.HasSuffix(text, " unsupported")
	m := envelopeOf(body)
	status := http.StatusOK
	if single {
		status = http.StatusBadRequest
	}
	if unknown && m.ID == nil {
		l.ResponseWriter.WriteHeader(http.StatusAccepted)
		return nil
	}
	a := messageError{id: m.id(), code: jsonrpc.CodeInvalidRequest, error: proto.Errorf(proto.InvalidArgument, "",
		"body", "this is no message of the protocol: %s", text)}
	switch {
	case !valid:
		a.code = jsonrpc.CodeParseError
	case m.ID == nil:
	case unknown:
		a.code, a.error = jsonrpc.CodeMethodNotFound, api.WithStatus(http.StatusOK, proto.Errorf(proto.InvalidArgument,
			"", "method", "there is no method %.80q here", m.Method))
	case strings.HasSuffix(text, `missing required "params"`):
		a.code, a.error = jsonrpc.CodeInvalidParams, api.WithStatus(status, proto.Errorf(proto.InvalidArgument,
			"", "params", "the method %.80q needs params", m.Method))
	}
	return a
}
