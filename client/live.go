package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// maxFrame bounds one message of the daemon's: an exit carries the whole result, up to 16 MiB of each
// stream, and JSON may write one byte as six.
const maxFrame = 256 << 20

// A message is what the client sends on a live connection.
// It mirrors the daemon's, which refuses unknown fields: a new one here needs a daemon that knows
// it.
type message struct {
	Type         string     `json:"type"`
	Ref          string     `json:"ref,omitempty"`
	Cmd          *proto.Cmd `json:"cmd,omitempty"`
	Binary       bool       `json:"binary,omitempty"`
	ExecID       string     `json:"exec_id,omitempty"`
	StdoutOffset int64      `json:"stdout_offset,omitempty"`
	StderrOffset int64      `json:"stderr_offset,omitempty"`
	DataBase64   []byte     `json:"data_base64,omitempty"`
	Signal       string     `json:"signal,omitempty"`
	Rows         uint16     `json:"rows,omitempty"`
	Cols         uint16     `json:"cols,omitempty"`
}

// A Live is a container's live connection. Commands that it began in the foreground are canceled
// by the daemon when it closes. Next is for one goroutine, the rest for any number.
type Live struct {
	client *Client
	conn   *websocket.Conn
	events *queue
	done   chan struct{} // closed when the reader has ended
	stop   func() bool
	piece  bytes.Buffer // what read has got of a binary message

	mu sync.Mutex // held while writing a message
}

// Live connects to a container. The connection ends with ctx.
func (c *Client) Live(ctx context.Context, container string) (*Live, error) {
	h := http.Header{}
	c.headers(h)
	// Reading a websocket takes no context, and neither does waiting for the answer that makes one of a connection:
	// closing that is what wakes the reader.
	stop := func() bool { return false }
	dial := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		stop = context.AfterFunc(ctx, func() { got.Conn.Close() })
	}})
	conn, res, err := c.dialer.DialContext(dial, "ws"+strings.TrimPrefix(c.url(at("containers", container, "live"),
		nil), "http"), h)
	if err != nil {
		stop()
	}
	if errors.Is(err, websocket.ErrBadHandshake) {
		data, _ := io.ReadAll(res.Body) // gorilla kept its beginning
		return nil, c.failureOf(at("containers", container, "live"), res.StatusCode, data)
	}
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	conn.SetReadLimit(maxFrame)
	l := &Live{client: c, conn: conn, events: newQueue(), done: make(chan struct{}), stop: stop}
	go l.read()
	return l, nil
}

// read moves events into the queue, so that the daemon is never kept waiting while the terminal is.
func (l *Live) read() {
	defer close(l.done)
	for {
		e, err := l.event()
		if err != nil {
			l.events.end(err)
			return
		}
		if !l.events.put(e) {
			return
		}
	}
}

// event reads one message. Output comes as bytes, in DataBase64.
func (l *Live) event() (e proto.Event, err error) {
	kind, r, err := l.conn.NextReader()
	if err != nil {
		return e, err
	}
	if kind != websocket.BinaryMessage {
		err = json.NewDecoder(r).Decode(&e)
		return e, err
	}
	l.piece.Reset()
	if _, err := l.piece.ReadFrom(r); err != nil {
		return e, err
	}
	return proto.ParseOutput(bytes.Clone(l.piece.Bytes())) // of the size that it has: most are small
}

// Next waits for the next event. Output is in DataBase64. It fails when the connection has ended.
func (l *Live) Next(ctx context.Context) (e proto.Event, err error) {
	e, err = l.events.take()
	var closed *websocket.CloseError
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	// it said goodbye
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure && closed.Text != "":
		err = proto.Errorf(proto.Unavailable, "", l.client.Host(), "the daemon ended the connection: %s", closed.Text)
	default:
		err = l.client.broken(ctx, err)
	}
	return e, err
}

// Exec asks for a command. Its start event, or an error, comes with the same ref.
func (l *Live) Exec(ref string, cmd proto.Cmd) error {
	return l.send(message{Type: "exec", Ref: ref, Cmd: &cmd, Binary: true})
}

// Attach asks for what an exec gives from the two offsets on.
func (l *Live) Attach(ref, exec string, stdout, stderr int64) error {
	return l.send(message{Type: "attach", Ref: ref, ExecID: exec, StdoutOffset: stdout, StderrOffset: stderr,
		Binary: true})
}

// Type sends bytes to a command's terminal. Of what the command does not read the daemon keeps 1 MiB and
// refuses the rest; Client.Stdin is for more.
func (l *Live) Type(exec string, b []byte) error {
	return l.send(message{Type: "stdin", ExecID: exec, DataBase64: b})
}

// Signal sends a signal by name.
func (l *Live) Signal(exec, signal string) error {
	return l.send(message{Type: "signal", ExecID: exec, Signal: signal})
}

// Resize tells a command's terminal its size.
func (l *Live) Resize(exec string, size proto.WindowSize) error {
	return l.send(message{Type: "resize", ExecID: exec, Rows: size.Rows, Cols: size.Cols})
}

// send writes one message; the connection takes one writer at a time.
func (l *Live) send(m message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn.WriteJSON(m)
}

// Close ends the connection.
func (l *Live) Close() error {
	// Close frees a reader that waits for room in the queue before it waits for the reader.
	l.stop()
	l.events.close()
	err := l.conn.Close()
	<-l.done
	return err
}
