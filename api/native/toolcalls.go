package native

import (
	"net/http"

	"berth/api"
	"berth/proto"
	"berth/tools/bridge"

	"github.com/gorilla/websocket"
)

// serveLimit bounds a message of a client that answers calls, in bytes: a result and its envelope.
const serveLimit = 4<<20 + 64<<10

// One page of a list.
type callPage struct {
	Data    []bridge.ToolCall `json:"data"`
	HasMore bool              `json:"has_more"`
	// Value of after for the next page; null on the last one.
	NextAfter *string `json:"next_after"`
}

// serveTools is the websocket of a client that answers calls. Its handler is the reader. The bridge sends calls, and
// holds them while the client is slow.
func (e *edge) serveTools(c *call) error {
	id, socket := c.r.PathValue("id"), e.Socket
	// Ask before the upgrade, so that a refused client gets an HTTP answer.
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
			_ = sock.Send(bridge.DaemonMessage{Type: "error", CallID: shortened(m.CallID), Error: proto.AsError(
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
