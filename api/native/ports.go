package native

import (
	"net/http"

	"berth/api/openapi"
	"berth/api/ports"
	"berth/proto"
	"berth/session"
)

// portRows are the routes about the ports of containers. The requests to the ports themselves are package ports's.
func (e *edge) portRows() []row {
	return []row{
		{"GET", "/v1/containers/{id}/ports", getIn(e, e.listPorts), openapi.Operation{ID: "listPorts",
			Summary: "List the ports that programs in a container listen on.", Fails: inGuest,
			Description: "What listens is reachable below /v1/containers/{id}/ports/{port}/, over HTTP and " +
				"WebSocket. A container that is stopped or paused has no list, and is not woken."}},
		{"POST", "/v1/containers/{id}/ports/{port}/url", mayTake(e.signPort).created(), openapi.Operation{
			ID: "signPort", Summary: "Make a URL that opens a port of a container in a browser, without an API key.",
			Fails: also(inContainer, 403, 501), Description: "It is valid until expires_at, for this port alone, and " +
				"ends with the container and the API key. Browsers get a cookie. The daemon must have a domain."}},
		{"PUT", "/v1/containers/{id}/public-ports/{port}", getIn(e, e.publishPort), openapi.Operation{ID: "publishPort",
			Summary: "Make a port of a container public: requests to its host name then need no credential.",
			Fails:   also(inContainer, 403, 501), Description: "The port is a number, or all for every one. The " +
				"daemon must allow it and have a domain."}},
		{"DELETE", "/v1/containers/{id}/public-ports/{port}", getIn(e, e.withdrawPort), openapi.Operation{
			ID: "withdrawPort", Summary: "Make a port private again; open connections of strangers to it end.",
			Fails: also(inContainer, 403, 409), Description: "With all, every port is private afterwards."}},
		{"GET", "/v1/containers/{id}/tunnel", getIn(e, e.tunnel), openapi.Operation{ID: "tunnel",
			Summary: "Open a websocket that carries a TCP connection to a port of a container.",
			Description: "Binary messages are the data, in both directions. An empty one ends its direction. A " +
				"stopped or paused container is woken.",
			Query:   []openapi.Param{{Name: "port", Required: true, Description: "A number from 1 to 65535."}},
			Answers: answers(http.StatusSwitchingProtocols, nil), Fails: also(inGuest, 426)}},
	}
}

func (e *edge) listPorts(c *call, s *session.Session) (page[proto.Port], error) {
	return list(e.Apps.List(c.ctx(), s))
}

func (e *edge) signPort(c *call, req proto.SignPort) (made proto.PortURL, err error) {
	if _, err = e.session(c); err != nil {
		return made, err
	}
	return e.Apps.Sign(c.ctx(), c.id(), c.path("port"), req)
}

func (e *edge) publishPort(c *call, s *session.Session) (proto.PublishedPorts, error) {
	return e.Apps.Publish(c.ctx(), s, c.path("port"))
}

func (e *edge) withdrawPort(c *call, s *session.Session) (proto.PublishedPorts, error) {
	return e.Apps.Withdraw(c.ctx(), s, c.path("port"))
}

func (e *edge) tunnel(c *call, s *session.Session) (any, error) {
	return nil, ports.Tunnel(c.w, c.r, s, e.Ports, e.Socket, c.query.Get("port"))
}
