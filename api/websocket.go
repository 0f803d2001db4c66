package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// Subprotocol is the name of our websocket protocol. Clients need not ask for it. A browser that sends its key as a
// subprotocol must be answered with another one.
const Subprotocol = "berth.v1"

// A SocketConfig bounds a websocket.
type SocketConfig struct {
	Origins         Origins       // of web pages that may connect
	MaxMessageBytes int64         // of one message from a client; 0 is 1 MiB
	PingEvery       time.Duration // 0 is 30 s; a client that is silent for three times as long is disconnected
	WriteTimeout    time.Duration // 0 is 1 minute; a client that takes nothing for this long is disconnected
}

// A Socket is one websocket of JSON messages. Send blocks while the client is slow and never queues, so a slow client
// costs a goroutine and a kernel buffer.
type Socket struct {
	cfg        SocketConfig
	conn       *websocket.Conn
	writeToken chan struct{} // holds one token: the right to write
	ctx        context.Context
	cancel     context.CancelFunc
	keeper     sync.WaitGroup
}

// Upgrade turns the request into a websocket. The handler returns its error as usual, and closes the socket before it
// returns.
func Upgrade(w http.ResponseWriter, r *http.Request, cfg SocketConfig) (*Socket, error) {
	if !websocket.IsWebSocketUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		return nil, WithStatus(http.StatusUpgradeRequired, proto.Errorf(proto.InvalidArgument, "", "Upgrade",
			"This endpoint speaks websocket only; connect with a websocket client."))
	}
	// The page of a request with the console's cookie is the daemon's own, whatever the daemon's name is.
	if !proto.CallerOf(r.Context()).Browser {
		if err := cfg.Origins.Check(r); err != nil {
			return nil, err
		}
	}
	var refused error
	up := websocket.Upgrader{
		Subprotocols: []string{Subprotocol},
		CheckOrigin:  func(*http.Request) bool { return true }, // Origins.Check has checked it
		Error: func(_ http.ResponseWriter, _ *http.Request, _ int, reason error) {
			refused = proto.Errorf(proto.InvalidArgument, "", "", "The websocket handshake is not right: %v.", reason)
		},
	}
	conn, err := up.Upgrade(w, r, http.Header{requestID: w.Header()[requestID]})
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	return newSocket(r.Context(), conn, cfg), nil
}

func newSocket(ctx context.Context, conn *websocket.Conn, cfg SocketConfig) *Socket {
	cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, 1<<20)
	cfg.PingEvery = cmp.Or(cfg.PingEvery, 30*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, time.Minute)
	s := &Socket{cfg: cfg, conn: conn, writeToken: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	conn.SetReadLimit(cfg.MaxMessageBytes)
	conn.SetPongHandler(func(string) error { return s.extendReadDeadline() })
	_ = s.extendReadDeadline()
	s.keeper.Go(s.keepAlive)
	return s
}

// Context ends when the client goes away, the server drains, or the socket is closed.
func (s *Socket) Context() context.Context { return s.ctx }

// Send writes v as one text message. Several goroutines may call it.
func (s *Socket) Send(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(websocket.TextMessage, body)
}

// SendBinary is Send for bytes, as a binary message.
func (s *Socket) SendBinary(b []byte) error { return s.write(websocket.BinaryMessage, b) }

func (s *Socket) write(kind int, body []byte) error {
	select {
	case s.writeToken <- struct{}{}:
		defer func() { <-s.writeToken }()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	// fails only on a closed connection, where the write fails, too
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
	if err := s.conn.WriteMessage(kind, body); err != nil {
		s.cancel()
		return err
	}
	return s.extendReadDeadline() // its pongs may wait behind what it has yet to read
}

// Read waits for the next message. One goroutine calls it. An error means that the socket has ended.
func (s *Socket) Read() ([]byte, error) {
	_, data, err := s.conn.ReadMessage()
	if err != nil {
		s.cancel()
		return nil, err
	}
	return data, s.extendReadDeadline()
}

// Close sends a close frame, ends the connection and waits for the socket's goroutine. A reason that is too long for
// a close frame is cut.
func (s *Socket) Close(code int, reason string) {
	s.sendClose(code, reason)
	s.cancel()
	s.keeper.Wait()
}

func (s *Socket) sendClose(code int, reason string) {
	reason = strings.ToValidUTF8(reason[:min(len(reason), 120)], "")
	_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason),
		time.Now().Add(time.Second))
}

func (s *Socket) extendReadDeadline() error {
	return s.conn.SetReadDeadline(time.Now().Add(3 * s.cfg.PingEvery))
}

// keepAlive sends pings. When the socket ends it closes the connection, which ends a running Read or Send.
func (s *Socket) keepAlive() {
	defer s.conn.Close()
	defer s.cancel()
	tick := time.NewTicker(s.cfg.PingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// A ping that cannot be sent behind a slow Send is no failure; Send has its own deadline.
			_ = s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(s.cfg.PingEvery/2))
		case <-Draining(s.ctx):
			s.sendClose(websocket.CloseGoingAway, "the daemon is shutting down")
			return
		case <-s.ctx.Done():
			if ended := keyEnded(s.ctx); ended != nil {
				s.sendClose(websocket.ClosePolicyViolation, proto.AsError(ended).Message)
			}
			return
		}
	}
}
