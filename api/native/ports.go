package native

import (
	"io"
	"net/http"

	"berth/api"
	"berth/api/openapi"
	"berth/guest/client"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"

	"github.com/gorilla/websocket"
)

// portRows are the routes about the ports of containers. The requests to the ports themselves are package ports's.
func (e *edge) portRows() []row {
	return []row{
		{"GET", "/v1/containers/{id}/ports", getIn(e, e.listPorts), openapi.Operation{ID: "listPorts",
			Summary: "List the ports that programs in a container listen on.", Fails: inGuest,
			Description: "What listens is reachable below /v1/containers/{id}/ports/{port}/, over HTTP and WebSocket. " +
				"A container that is stopped or paused has no list, and is not woken."}},
		{"GET", "/v1/containers/{id}/tunnel", getIn(e, e.tunnel), openapi.Operation{ID: "tunnel",
			Summary: "Open a websocket that carries a TCP connection to a port of a container.",
			Description: "Binary messages are the data, in both directions. An empty one ends its direction. A stopped " +
				"or paused container is woken.",
			Query:   []openapi.Param{{Name: "port", Required: true, Description: "A number from 1 to 65535."}},
			Answers: answers(http.StatusSwitchingProtocols, nil), Fails: also(inGuest, 426)}},
	}
}

func (e *edge) listPorts(c *call, s *session.Session) (page[proto.Port], error) {
	return list(inbound.Listening(c.ctx(), s))
}

// tunnel carries a connection until both directions have ended, or either side is gone.
func (e *edge) tunnel(c *call, s *session.Session) (any, error) {
	if !websocket.IsWebSocketUpgrade(c.r) {
		_, err := api.Upgrade(c.w, c.r, e.Socket) // which refuses it, and nothing is woken
		return nil, err
	}
	port, err := inbound.ParsePort(c.query.Get("port"))
	if err != nil {
		return nil, err
	}
	conn, err := e.Ports.Dial(c.ctx(), s, port)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	sock, err := api.Upgrade(c.w, c.r, e.Socket)
	if err != nil {
		return nil, err
	}
	in, out := make(chan struct{}), make(chan struct{}) // closed when that direction has ended
	go func() {
		defer close(out)
		if copyOut(sock, conn) == nil {
			select {
			case <-in:
			case <-sock.Context().Done():
			}
		}
		sock.Close(websocket.CloseNormalClosure, "")
	}()
	copyIn(conn, sock, in)
	_ = conn.Close()
	<-out
	return nil, nil
}

// tunnelPiece is the largest message of a tunnel that the daemon sends, in bytes.
const tunnelPiece = 32 << 10

// copyOut sends what the program sends, and an empty message after it.
func copyOut(sock *api.Socket, program io.Reader) error {
	buf := make([]byte, tunnelPiece)
	for {
		n, err := program.Read(buf)
		if n > 0 {
			if err := sock.SendBinary(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return sock.SendBinary(nil)
		}
	}
}

// copyIn passes messages to the program until the socket ends or the program takes no more. It closes ended at the
// empty message, and reads on to notice a client that goes away.
func copyIn(program client.PortConn, sock *api.Socket, ended chan struct{}) {
	for over := false; ; {
		data, err := sock.Read()
		switch {
		case err != nil:
			return
		case len(data) > 0 && !over:
			if _, err := program.Write(data); err != nil {
				return
			}
		case !over:
			over = true
			close(ended)
			_ = program.CloseWrite() // fails if the program is gone, which the other direction notices
		}
	}
}
