package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"berth/api"
	"berth/proto"
	"berth/session"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// singleInstructions are for the model of a client whose requests belong to no session.
const singleInstructions = `berth runs commands and code in Linux containers. The argument container of a tool names the container. Choose a name, such as work, and use it in every call of one piece of work: the first call with a new name creates the container, which keeps its files until delete_container, or for 7 days. list_containers has those that exist.
bash is a persistent shell. run_code starts a new interpreter, or continues the one that context names, which keeps its variables. Both use the same files, below /workspace.
Files in $OUTPUT_DIR are stored and returned as links.
A long text is cut in its middle. A large picture or file is a link. Read a link with resources/read; append ?offset=BYTES&length=BYTES to its URI to read a part.`

// newSingle makes the handler of requests that belong to no session.
func (e *Edge) newSingle() http.Handler {
	server := e.newServer(singleInstructions)
	server.AddReceivingMiddleware(singleErrors, onlyDeclared)
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server },
		&sdk.StreamableHTTPOptions{
			// there is nothing to come back to, so the end of a connection ends what it asked for
			Stateless: true, PropagateRequestCancellation: true,
			MaxRequestBodyBytes: maxMessage, DisableLocalhostProtection: true,
		})
}

// serveSingle answers a request that belongs to no session. It names its version, its client and its container itself.
func (e *Edge) serveSingle(w http.ResponseWriter, r *http.Request, c api.Caller, m envelope, body []byte) error {
	name, err := m.checkHeaders(r.Header)
	if err != nil {
		return err
	}
	p, err := e.requestedPlace(r, c)
	if err != nil {
		return messageError{id: m.id(), code: singleCode(proto.CodeOf(err)), error: api.WithStatus(
			http.StatusBadRequest, err)}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.Clone(ctx)
	if name != "" {
		r.Header.Set(nameHeader, name)
	}
	return e.pass(w, r, body, m, e.single, &peer{owner: c.Owner, place: p})
}

// Headers that repeat fields of the message, so that a proxy need not read it.
const (
	methodHeader = "Mcp-Method"
	nameHeader   = "Mcp-Name"
)

// checkHeaders checks the headers that repeat fields of the message as far as the SDK does not, and the version. It
// returns the value of the header with the name, decoded.
func (m envelope) checkHeaders(h http.Header) (name string, err error) {
	for _, header := range []string{versionHeader, methodHeader, nameHeader} {
		values := h.Values(header)
		if len(values) > 1 {
			return "", m.mismatch(header, "the header %s occurs %d times; send it once", header, len(values))
		}
		if len(values) == 1 && strings.ContainsFunc(values[0], func(c rune) bool { return c > '~' || c < ' ' }) {
			return "", m.mismatch(header, "the header %s has characters that are not printable ASCII; send it as "+
				"=?base64?…?=", header)
		}
	}
	asked, inHeader := m.Params.Meta.Version, h.Get(versionHeader)
	switch {
	case asked != "" && inHeader == "":
		return "", m.mismatch(versionHeader, "the header %s is missing; set it to %.80q, as in _meta", versionHeader,
			asked)
	case asked != "" && inHeader != asked:
		return "", m.mismatch(versionHeader, "the header %s is %.80q, and _meta says %.80q; send the same in both",
			versionHeader, inHeader, asked)
	case asked != "" && !slices.Contains(versions, asked):
		return "", messageError{id: m.id(), code: sdk.CodeUnsupportedProtocolVersion,
			versions: &sdk.UnsupportedProtocolVersionData{Supported: versions, Requested: asked},
			error: proto.Invalid(versionHeader, "version %.80q of the protocol is not supported; use one of %s", asked,
				strings.Join(versions, ", "))}
	}
	name, ok := decodeHeader(h.Get(nameHeader))
	if !ok {
		return "", m.mismatch(nameHeader, "the header %s is not valid base64 of UTF-8", nameHeader)
	}
	return name, nil
}

// mismatch is the protocol's error for a header that does not fit the message.
func (m envelope) mismatch(header, format string, args ...any) error {
	return messageError{id: m.id(), code: sdk.CodeHeaderMismatch, error: proto.Invalid(header, format, args...)}
}

// decodeHeader decodes the value of a header: as it is, or as base64 of UTF-8.
func decodeHeader(value string) (decoded string, ok bool) {
	inner, ok := strings.CutPrefix(value, "=?base64?")
	if ok {
		inner, ok = strings.CutSuffix(inner, "?=")
	}
	if !ok {
		return value, true
	}
	data, err := base64.StdEncoding.DecodeString(inner)
	return string(data), err == nil && utf8.Valid(data)
}

// onlyDeclared refuses methods of capabilities that the server does not declare. The SDK answers some of them with
// nothing, which clients with sessions have always got.
func onlyDeclared(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if strings.HasPrefix(method, "prompts/") || strings.HasPrefix(method, "completion/") {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
				Message: "there is no method " + method + " here"}
		}
		return next(ctx, method, req)
	}
}

// singleErrors replaces error numbers that only versions with sessions have.
func singleErrors(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		var to *jsonrpc.Error
		if errors.As(err, &to) {
			switch changed := *to; to.Code {
			case notFound:
				changed.Code = jsonrpc.CodeInvalidParams
				return nil, &changed
			case serverError:
				changed.Code = jsonrpc.CodeInternalError
				return nil, &changed
			}
		}
		return res, err
	}
}

// singleCode is rpcCode for versions without sessions.
func singleCode(code proto.Code) int64 {
	switch code {
	case proto.InvalidArgument, proto.TooLarge, proto.NotFound:
		return jsonrpc.CodeInvalidParams
	}
	return jsonrpc.CodeInternalError
}

// completeResult is an empty result that says that it is complete. Versions without sessions require that. The SDK has
// no public field for it, and marks only results of tools that it calls itself.
var completeResult = func() (res sdk.CallToolResult) {
	if err := json.Unmarshal([]byte(`{"resultType":"complete","content":[]}`), &res); err != nil {
		panic(err) // the text is constant, so the first test would find it
	}
	return res
}()

// complete returns a result that says that it is complete.
func complete(res *sdk.CallToolResult) *sdk.CallToolResult {
	out := completeResult
	out.Meta, out.Content, out.IsError = res.Meta, res.Content, res.IsError
	out.StructuredContent = res.StructuredContent
	return &out
}

// createNamed creates the container that a call without a session names, unless it was named by an ID. absent is the
// error for the container that is not there. Of several calls at a time, one creates it.
func (e *Edge) createNamed(ctx context.Context, who *peer, name string, absent error) (*session.Session, string,
	error) {
	if strings.HasPrefix(name, proto.ContainerPrefix) {
		return nil, "", absent
	}
	req := who.place.create()
	req.Name, req.Existing = name, true
	s, found, err := e.Sessions.CreateOnce(ctx, who.owner, req)
	if err != nil || found {
		return s, "", err
	}
	return s, "the container " + name + " is new", nil
}

// namingTools are the common tools for clients whose calls must name the container.
var namingTools = requireContainer(commonTools)

// requireContainer returns tools in which the field container, where there is one, is required and names a container
// that may be new.
func requireContainer(tools []tool) (out []tool) {
	for _, t := range tools {
		s := t.InputSchema.(schema)
		f := s["properties"].(fields)
		if _, ok := f["container"]; ok && !slices.Contains(requiredOf(s), "container") {
			named, required := fields{}, []string{"container"}
			for key, value := range f {
				named[key] = value
			}
			named["container"] = handleField
			row := *t.Tool
			row.InputSchema = object(append(required, requiredOf(s)...), named)
			t.Tool = &row
		}
		out = append(out, t)
	}
	return out
}

// requiredOf returns the required fields of an object.
func requiredOf(s schema) []string {
	list, _ := s["required"].([]string)
	return list
}
