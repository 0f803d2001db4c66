package ports

import (
	"io"
	"net/http"

	"github.com/gorilla/websocket"

	"berth/api"
	"berth/guest/client"
	"berth/session"
	"berth/session/inbound"
)

// Tunnel answers a request with a websocket that carries a connection to a port of a container.
func Tunnel(w http.ResponseWriter, r *http.Request, s *session.Session, dialed *inbound.Ports, cfg api.SocketConfig,
	port string) error {
	if !websocket.IsWebSocketUpgrade(r) {
		_, err := api.Upgrade(w, r, cfg) // which refuses it, and nothing is woken
		return err
	}
	number, err := inbound.ParsePort(port)
	if err != nil {
		return err
	}
	conn, err := dialed.Dial(r.Context(), s, number)
	if err != nil {
		return err
	}
	defer conn.Close()
	sock, err := api.Upgrade(w, r, cfg)
	if err != nil {
		return err
	}
	carry(sock, conn)
	return nil
}

// carry carries a connection to a port over a websocket until both directions have ended, or either side is gone. It
// closes both.
func carry(sock *api.Socket, conn client.PortConn) {
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
