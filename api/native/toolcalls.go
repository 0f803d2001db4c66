package native

import (
	"berth/api"
	"berth/api/strictjson"
	"berth/proto"
	"berth/tools/bridge"

	"github.com/gorilla/websocket"
)

// serveLimit bounds a message of a client that answers calls, in bytes: a result and its envelope.
const serveLimit = 4<<20 + 64<<10

// serveTools is the websocket of a client that answers calls. Its handler is the reader. The bridge sends calls, and
// holds them while the client is slow.
func (e *edge) serveTools(c *call) (any, error) {
	id, socket := c.id(), e.Socket
	// Ask before the upgrade, so that a refused client gets an HTTP answer.
	if err := e.Bridge.MayConnect(c.owner, id); err != nil {
		return nil, err
	}
	socket.MaxMessageBytes = serveLimit
	sock, err := api.Upgrade(c.w, c.r, socket)
	if err != nil {
		return nil, err
	}
	defer sock.Close(websocket.CloseNormalClosure, "")
	client, err := e.Bridge.Connect(sock.Context(), c.owner, id, func(m bridge.DaemonMessage) error {
		return sock.Send(m)
	})
	if err != nil {
		_ = sock.Send(bridge.DaemonMessage{Type: "error", Error: proto.AsError(err)})
		return nil, nil
	}
	defer client.Close()
	for {
		data, err := sock.Read()
		if err != nil {
			// a close frame says goodbye, unless it answers that of the daemon
			if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway,
				websocket.CloseNoStatusReceived) && !api.IsDraining(c.ctx()) {
				client.Leave()
			}
			return nil, nil
		}
		var m bridge.ClientMessage
		if err = strictjson.DecodeBytes(data, &m); err == nil {
			err = client.Handle(m)
		}
		if err != nil {
			_ = sock.Send(bridge.DaemonMessage{Type: "error", CallID: api.Shortened(m.CallID),
				Error: proto.AsError(e.Sessions.HideError(id, err))})
		}
	}
}

func (e *edge) listCalls(c *call) (page[proto.ToolCall], error) {
	data, more, err := e.Bridge.Calls(c.owner, c.id(), bridge.Filter{
		State: proto.ToolCallState(c.query.Get("state")), Exec: c.query.Get("exec"), After: c.query.Get("after"),
		Limit: int(c.whole("limit")),
	})
	return listPart(data, more, err, func(call *proto.ToolCall) *string { return &call.ID })
}

func (e *edge) getCall(c *call) (proto.ToolCall, error) {
	return e.Bridge.GetCall(c.owner, c.id(), c.path("call"))
}

func (e *edge) approveCall(c *call) (proto.ToolCall, error) {
	one, err := e.Bridge.Approve(c.ctx(), c.owner, c.id(), c.path("call"))
	api.Note(c.ctx(), one.Tool)
	return one, err
}

func (e *edge) refuseCall(c *call, req proto.Refusal) (proto.ToolCall, error) {
	one, err := e.Bridge.Refuse(c.ctx(), c.owner, c.id(), c.path("call"), req)
	api.Note(c.ctx(), one.Tool)
	return one, err
}
