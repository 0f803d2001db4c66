package mcp

import (
	"context"
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
			return inSession(e, ctx, method, req, func(ctx context.Context, v *mcpSession) (*sdk.ListToolsResult,
				error) {
				return e.listTools(ctx, v, p)
			})
		case *sdk.CallToolParamsRaw:
			return inSession(e, ctx, method, req, func(ctx context.Context, v *mcpSession) (*sdk.CallToolResult,
				error) {
				return e.callTool(ctx, v, req.GetSession().(*sdk.ServerSession), p)
			})
		case *sdk.ListResourcesParams:
			return inSession(e, ctx, method, req, func(ctx context.Context, v *mcpSession) (*sdk.ListResourcesResult,
				error) {
				return e.listResources(ctx, v, p)
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
	if err := e.startSession(req.GetSession().(*sdk.ServerSession), wire, p); err != nil {
		return nil, refusal(err)
	}
	return res, nil
}

// origin returns the context of the HTTP request that brought a message.
func (e *Edge) origin(extra *sdk.RequestExtra) (context.Context, http.Header, error) {
	if extra != nil {
		if wire, ok := e.requests.Load(extra.Header.Get(wireHeader)); ok {
			return wire.(context.Context), extra.Header, nil
		}
	}
	return nil, nil, proto.Errorf(proto.Canceled, "", "", "the client went away")
}

// inSession runs do for the session of a message. The context has the caller, and ends when the client cancels the
// request, or when the session or the caller's key ends.
func inSession[R sdk.Result](e *Edge, ctx context.Context, method string, req sdk.Request,
	do func(context.Context, *mcpSession) (R, error)) (
	sdk.Result, error) {
	wire, _, err := e.origin(req.GetExtra())
	if err != nil {
		return nil, refusal(err)
	}
	e.mu.Lock()
	v := e.sessions[req.GetSession().ID()]
	e.mu.Unlock()
	if v == nil {
		return nil, refusal(proto.Errorf(proto.NotFound, "", sessionHeader, "there is no such session; send "+
			"initialize to begin one"))
	}
	done, err := v.begin()
	if err != nil {
		return nil, refusal(err)
	}
	defer done()
	// The SDK's context belongs to the session, and so has the caller who started that.
	work, cancel := context.WithCancel(proto.WithRequestID(proto.WithCaller(ctx, proto.CallerOf(wire)),
		proto.RequestIDOf(wire)))
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	defer context.AfterFunc(e.Life(proto.CallerOf(wire).KeyID), cancel)()
	work, sp := startSpan(span.Carry(work, wire), method, req)
	sp.String(span.MCPSession, req.GetSession().ID())
	res, err := do(work, v)
	sp.End(err)
	if err != nil {
		return nil, refusal(err)
	}
	return res, nil
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
