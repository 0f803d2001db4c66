package native

import (
	"berth/api/openapi"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
)

// portRows are the routes about the ports of containers. The requests to the ports themselves are package ports's.
func (e *edge) portRows() []row {
	return []row{
		{"GET", "/v1/containers/{id}/ports", getIn(e, e.listPorts), openapi.Operation{ID: "listPorts",
			Summary: "List the ports that programs in a container listen on.", Fails: inGuest,
			Description: "What listens is reachable below /v1/containers/{id}/ports/{port}/, over HTTP and WebSocket. " +
				"A container that is stopped or paused has no list, and is not woken."}},
	}
}

func (e *edge) listPorts(c *call, s *session.Session) (page[proto.Port], error) {
	return list(inbound.Listening(c.ctx(), s))
}
