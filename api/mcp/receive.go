package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"berth/proto"
	"berth/proto/span"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// receive handles the messages that depend on the owner, before the SDK does.
func (e *Edge) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch p := req.GetParams().(type) {
		case *sdk.InitializeParams:
			return e.initialize(req, func() (sdk.Result, error) { return next(ctx, method, req) })
		case *sdk.ListToolsParams:
			return forPeer(e, ctx, method, req, func(ctx context.Context, who *peer) (*sdk.ListToolsResult,
				error) {
				return e.listTools(ctx, who, p)
			})
		case *sdk.CallToolParamsRaw:
			return forPeer(e, ctx, method, req, func(ctx context.Context, who *peer) (*sdk.CallToolResult,
				error) {
				res, err := e.callTool(ctx, who, req.GetSession().(*sdk.ServerSession), p)
				if err == nil && who.session == nil {
					res = complete(res)
				}
				return res, err
			})
		case *sdk.ListResourcesParams:
			return forPeer(e, ctx, method, req, func(ctx context.Context, who *peer) (*sdk.ListResourcesResult,
				error) {
				return e.listResources(ctx, who, p)
			})
		case *sdk.SubscriptionsListenParams:
			return forPeer(e, ctx, method, req, func(ctx context.Context, who *peer) (*sdk.SubscriptionsListenResult,
				error) {
				return e.listen(ctx, who, req, p)
			})
		}
		return next(ctx, method, req)
	}
}

// initialize starts a session once the SDK has accepted it.
func (e *Edge) initialize(req sdk.Request, agree func() (sdk.Result, error)) (sdk.Result, error) {
	res, err := agree()
	if err != nil {
		return nil, err
	}
	wire, header, err := e.origin(req.GetExtra())
	if err != nil {
		return nil, refusal(err)
	}
	p, err := readPlace(header)
	if err != nil {
		return nil, refusal(err)
	}
	if err := e.startSession(req.GetSession().(*sdk.ServerSession), wire.ctx, p); err != nil {
		return nil, refusal(err)
	}
	return res, nil
}

// A wireRequest is a running HTTP request that brought a message.
type wireRequest struct {
	ctx    context.Context
	id     json.RawMessage // of the message
	single *peer           // who sent a message that belongs to no session; nil: it belongs to one
}

// origin returns the HTTP request that brought a message.
func (e *Edge) origin(extra *sdk.RequestExtra) (wireRequest, http.Header, error) {
	if extra != nil {
		if wire, ok := e.requests.Load(extra.Header.Get(wireHeader)); ok {
			return wire.(wireRequest), extra.Header, nil
		}
	}
	return wireRequest{}, nil, proto.Errorf(proto.Canceled, "", "", "the client went away")
}

// forPeer runs do for the sender of a message. The context has the caller, and ends when the client cancels the
// request, or when the session or the caller's key ends.
func forPeer[R sdk.Result](e *Edge, ctx context.Context, method string, req sdk.Request,
	do func(context.Context, *peer) (R, error)) (sdk.Result, error) {
	wire, _, err := e.origin(req.GetExtra())
	if err != nil {
		return nil, refusal(err)
	}
	// The SDK's context belongs to the session, and so has the caller who started that.
	work, cancel := context.WithCancel(proto.WithRequestID(proto.WithCaller(ctx, proto.CallerOf(wire.ctx)),
		proto.RequestIDOf(wire.ctx)))
	defer cancel()
	who, id := wire.single, ""
	if who == nil {
		id = req.GetSession().ID()
		v, done, err := e.sessionOfMessage(id)
		if err != nil {
			return nil, refusal(err)
		}
		defer done()
		defer context.AfterFunc(v.ctx, cancel)()
		who = v.peer
	} else {
		defer context.AfterFunc(wire.ctx, cancel)() // the end of the connection cancels
	}
	defer context.AfterFunc(e.Life(proto.CallerOf(wire.ctx).KeyID), cancel)()
	work, sp := startSpan(span.Carry(work, wire.ctx), method, req)
	if id != "" {
		sp.String(span.MCPSession, id)
	}
	res, err := do(work, who)
	sp.End(err)
	if err != nil {
		return nil, refusal(err)
	}
	return res, nil
}

// sessionOfMessage returns a session in which a call begins, until done.
func (e *Edge) sessionOfMessage(id string) (v *mcpSession, done func(), err error) {
	e.mu.Lock()
	v = e.sessions[id]
	e.mu.Unlock()
	if v == nil {
		return nil, nil, proto.Errorf(proto.NotFound, "", sessionHeader, "there is no such session; send "+
			"initialize to begin one")
	}
	done, err = v.begin()
	return v, done, err
}

// startSpan begins the span of a message: the child of the span that its metadata name, or else of the request that
// brought it.
func startSpan(ctx context.Context, method string, req sdk.Request) (context.Context, span.Span) {
	name := method
	p, tool := req.GetParams().(*sdk.CallToolParamsRaw)
	if tool {
		name += " " + p.Name
	}
	// a message without params has a nil pointer
	if params := reflect.ValueOf(req.GetParams()); params.Kind() == reflect.Pointer && !params.IsNil() {
		ctx = span.FromMeta(ctx, req.GetParams().GetMeta())
	}
	ctx, sp := span.Start(ctx, name)
	sp.String(span.MCPMethod, method)
	if tool {
		sp.String(span.ToolName, p.Name)
	}
	return ctx, sp
}

// refusal converts an error to one of the protocol, where there is no result to carry it.
func refusal(err error) error {
	e := proto.AsError(err)
	return &jsonrpc.Error{Code: rpcCode(e.Code), Message: e.Message, Data: encode(failure{Error: e})}
}

// rpcCode returns the error number of the protocol.
func rpcCode(code proto.Code) int64 {
	switch code {
	case proto.InvalidArgument, proto.TooLarge:
		return jsonrpc.CodeInvalidParams
	case proto.NotFound:
		return notFound
	case proto.Internal:
		return jsonrpc.CodeInternalError
	}
	return serverError
}

// Numbers that JSON-RPC leaves to servers: the first one, and the protocol's number for a missing resource.
const (
	serverError = -32000
	notFound    = -32002
)
