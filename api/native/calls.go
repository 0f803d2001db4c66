package native

import (
	"net/http"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
	"berth/tools/bridge"

	"github.com/gorilla/websocket"
)

// serveLimit bounds a message of a client that answers calls, in bytes: a result, and what stands beside it.
const serveLimit = 4<<20 + 64<<10

func (e *edge) callRows() []row {
	const tag, at = "tools of code", "/v1/containers/{id}/tool_calls"
	decided := append([]int{409}, inBox...)
	return []row{
		{"GET", "/v1/containers/{id}/tools", api.InPath, e.serveTools, openapi.Operation{ID: "serveTools", Tag: tag,
			Summary: "A websocket: answer the calls that code in a container makes.", Description: serveMore,
			Answers: map[int][]openapi.Content{http.StatusSwitchingProtocols: nil}, Fails: append([]int{403, 426},
				decided...)}},
		{"GET", at, api.InPath, e.listCalls, openapi.Operation{ID: "listToolCalls", Tag: tag, Summary: "List the calls that code in a container " +
			"made, newest first.",
			Query: []openapi.Param{
				{Name: "state", Description: "Only calls in this state; those that wait for a person are parked.",
					Choices: names(proto.ToolCallStates)},
				{Name: "exec", Pattern: "^(exec_[0-9A-Za-z]{22})?$", Description: "Only calls of this command."},
				{Name: "limit", Kind: openapi.Whole, Max: 100, Description: "At most so many, 1 to 100; 0 is the default, 20. " +
					"Fewer come where they are large."},
				{Name: "after", Pattern: "^(call_[0-9A-Za-z]{22})?$", Description: "A call's ID: begin behind it."},
			}, Answers: ok(callPage{}), Fails: inBox}},
		{"GET", at + "/{call}", api.InPath, e.getCall, openapi.Operation{ID: "getToolCall", Tag: tag, Summary: "Describe a call.",
			Answers: ok(bridge.ToolCall{}), Fails: inBox}},
		{"POST", at + "/{call}/approve", api.InPath, e.approveCall, openapi.Operation{ID: "approveToolCall", Tag: tag,
			Summary: "Let a parked call be made.",
			Description: "An approval is for one call with the input that is shown, and only the first decision about " +
				"it counts: later ones are a 409. One that comes too late is a 410.",
			Answers: ok(bridge.ToolCall{}), Fails: decided}},
		{"POST", at + "/{call}/refuse", api.InPath, e.refuseCall, openapi.Operation{ID: "refuseToolCall", Tag: tag,
			Summary: "Refuse a parked call; its code gets a PermissionError.",
			Body:    js(bridge.Refusal{}), Optional: true, Answers: ok(bridge.ToolCall{}), Fails: decided}},
	}
}

const serveMore = "For a container whose code_tools have the provider \"client\". Text messages both ways, JSON: " +
	"the client sends ClientMessage objects, the server DaemonMessage objects. The client says with serve what it " +
	"answers, and may say it again; " +
	"the answer, serving, has the names among them that code may call. Each call is answered with result or error, " +
	"in any order; cancel says that nobody waits for one any more. When the connection ends, calls without an " +
	"answer wait a moment for a client that " +
	"serves the same tools, and come to it again with the same call_id: a client that has one already goes on with " +
	"it. A message that is not right is answered by one of type error, and the connection stays."

// One page of a list.
type callPage struct {
	Data    []bridge.ToolCall `json:"data"`
	HasMore bool              `json:"has_more"`
	// Value of after for the next page; null on the last one.
	NextAfter *string `json:"next_after"`
}

// serveTools is the websocket of a client that answers calls. Its handler is the reader; calls are sent by the
// bridge, which holds them while the client is slow.
func (e *edge) serveTools(c *call) error {
	id, socket := c.r.PathValue("id"), e.Socket
	// Asked before there is a websocket, so that a client without a chance gets an HTTP answer.
	if err := e.Bridge.MayConnect(c.owner, id); err != nil {
		return err
	}
	socket.MaxMessageBytes = serveLimit
	sock, err := api.Upgrade(c.w, c.r, socket)
	if err != nil {
		return err
	}
	defer sock.Close(websocket.CloseNormalClosure, "")
	client, err := e.Bridge.Connect(sock.Context(), c.owner, id, func(m bridge.DaemonMessage) error {
		return sock.Send(m)
	})
	if err != nil {
		_ = sock.Send(bridge.DaemonMessage{Type: "error", Error: proto.AsError(err)})
		return nil
	}
	defer client.Close()
	for {
		data, err := sock.Read()
		if err != nil {
			return nil
		}
		var m bridge.ClientMessage
		if err = api.DecodeBytes(data, &m); err == nil {
			err = client.Handle(m)
		}
		if err != nil {
			_ = sock.Send(bridge.DaemonMessage{Type: "error", CallID: shown(m.CallID), Error: proto.AsError(
				e.Sessions.HideError(id, err))})
		}
	}
}

func (e *edge) listCalls(c *call) error {
	data, more, err := e.Bridge.Calls(c.owner, c.r.PathValue("id"), bridge.Filter{
		State: proto.ToolCallState(c.query.Get("state")), Exec: c.query.Get("exec"), After: c.query.Get("after"),
		Limit: int(c.whole("limit")),
	})
	if err != nil {
		return err
	}
	p := callPage{Data: data, HasMore: more}
	if data == nil {
		p.Data = []bridge.ToolCall{}
	}
	if more {
		p.NextAfter = &data[len(data)-1].ID
	}
	return c.json(http.StatusOK, p)
}

func (e *edge) getCall(c *call) error {
	one, err := e.Bridge.GetCall(c.owner, c.r.PathValue("id"), c.r.PathValue("call"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, one)
}

func (e *edge) approveCall(c *call) error {
	one, err := e.Bridge.Approve(c.r.Context(), c.owner, c.r.PathValue("id"), c.r.PathValue("call"))
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), one.Tool)
	return c.json(http.StatusOK, one)
}

func (e *edge) refuseCall(c *call) error {
	var req bridge.Refusal
	if err := c.decodeOptional(&req); err != nil {
		return err
	}
	one, err := e.Bridge.Refuse(c.r.Context(), c.owner, c.r.PathValue("id"), c.r.PathValue("call"), req)
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), one.Tool)
	return c.json(http.StatusOK, one)
}
