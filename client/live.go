package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// maxFrame bounds one message of the daemon, in bytes. An exit event has the whole result: up to 16 MiB of each
// stream, and JSON may encode one byte as six.
const maxFrame = 256 << 20

// A message is a message from the client on a live connection. It repeats the daemon's type. The daemon refuses
// unknown fields, so a new field needs a newer daemon.
type message struct {
	Type         string     `json:"type"`
	Ref          string     `json:"ref,omitempty"`
	Cmd          *proto.Cmd `json:"cmd,omitempty"`
	Binary       bool       `json:"binary,omitempty"`
	ExecID       string     `json:"exec_id,omitempty"`
	StdoutOffset int64      `json:"stdout_offset,omitempty"`
	StderrOffset int64      `json:"stderr_offset,omitempty"`
	TailBytes    int64      `json:"tail_bytes,omitempty"`
	DataBase64   []byte     `json:"data_base64,omitempty"`
	Signal       string     `json:"signal,omitempty"`
	Rows         uint16     `json:"rows,omitempty"`
	Cols         uint16     `json:"cols,omitempty"`
}

// A Live is a live connection to a container. When it closes, the daemon cancels the foreground commands that it
// started. Only one goroutine may call Next. The other methods are safe for concurrent use.
type Live struct {
	client *Client
	conn   *websocket.Conn
	events *queue
	done   chan struct{} // closed when the reader ends
	stop   func() bool
	piece  bytes.Buffer // buffer for one binary message

	mu sync.Mutex // held while writing a message
}

// Live opens a live connection to a container. The connection ends with ctx.
func (c *Client) Live(ctx context.Context, container string) (l *Live, err error) {
	err = c.whileAway(ctx, true, func() error { // nothing runs yet
		l, err = c.live(ctx, container)
		return err
	})
	return l, err
}

// live does the work of Live without waiting for a daemon that is away.
func (c *Client) live(ctx context.Context, container string) (*Live, error) {
	conn, stop, err := c.Socket(ctx, at("containers", container, "live"), nil)
	if err != nil {
		return nil, err
	}
	l := &Live{client: c, conn: conn, events: newQueue(), done: make(chan struct{}), stop: stop}
	go l.read()
	return l, nil
}

// Socket opens a websocket of the API, whose path begins with /v1/. It ends with ctx, until stop is called.
func (c *Client) Socket(ctx context.Context, path string, query url.Values) (*websocket.Conn, func() bool, error) {
	h := http.Header{}
	c.headers(h)
	// Reading from a websocket takes no context, and neither does waiting for the handshake's answer. Closing the
	// connection ends both.
	stop := func() bool { return false }
	dial := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		stop = context.AfterFunc(ctx, func() { got.Conn.Close() })
	}})
	conn, res, err := c.dialer.DialContext(dial, "ws"+strings.TrimPrefix(c.url(path, query), "http"), h)
	if err != nil {
		stop()
	}
	if errors.Is(err, websocket.ErrBadHandshake) {
		data, _ := io.ReadAll(res.Body) // the websocket package kept the start of the body
		return nil, nil, c.failureOf(path, res.StatusCode, data)
	}
	if err != nil {
		return nil, nil, c.broken(ctx, err)
	}
	c.met.Store(true)
	conn.SetReadLimit(maxFrame)
	return conn, stop, nil
}

// read moves events into the queue, so that a slow terminal does not block the daemon.
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

// event reads one message. Output is in DataBase64, as bytes.
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
	return proto.ParseOutput(bytes.Clone(l.piece.Bytes())) // a copy of the exact size, since most are small
}

// Next waits for the next event. Output is in DataBase64. It returns an error when the connection has ended.
func (l *Live) Next(ctx context.Context) (e proto.Event, err error) {
	e, err = l.events.take()
	var closed *websocket.CloseError
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	// the daemon closed the connection with a message
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure && closed.Text != "":
		err = proto.Errorf(proto.Unavailable, "", l.client.Host(), "the daemon ended the connection: %s", closed.Text)
	default:
		err = l.client.broken(ctx, err)
	}
	return e, err
}

// Exec requests a command. The answer is a start event or an error with the same ref.
func (l *Live) Exec(ref string, cmd proto.Cmd) error {
	return l.send(message{Type: "exec", Ref: ref, Cmd: &cmd, Binary: true})
}

// Attach requests the output of an exec from the two offsets on.
func (l *Live) Attach(ref, exec string, stdout, stderr int64) error {
	return l.send(message{Type: "attach", Ref: ref, ExecID: exec, StdoutOffset: stdout, StderrOffset: stderr,
		Binary: true})
}

// AttachTail requests the output of an exec from that many bytes before the end of each stream on; 0 is all of it.
func (l *Live) AttachTail(ref, exec string, tail int64) error {
	return l.send(message{Type: "attach", Ref: ref, ExecID: exec, TailBytes: tail, Binary: true})
}

// Detach stops the output of an exec, which goes on. The last event is of type detached.
func (l *Live) Detach(exec string) error { return l.send(message{Type: "detach", ExecID: exec}) }

// Type sends bytes to a command's terminal. The daemon buffers 1 MiB that the command has not read, and refuses more.
// Use Client.Stdin for larger input.
func (l *Live) Type(exec string, b []byte) error {
	return l.send(message{Type: "stdin", ExecID: exec, DataBase64: b})
}

// Signal sends a signal, given by name, to a command.
func (l *Live) Signal(exec, signal string) error {
	return l.send(message{Type: "signal", ExecID: exec, Signal: signal})
}

// Resize sets the size of a command's terminal.
func (l *Live) Resize(exec string, size proto.WindowSize) error {
	return l.send(message{Type: "resize", ExecID: exec, Rows: size.Rows, Cols: size.Cols})
}

// send writes one message. The connection allows one writer at a time.
func (l *Live) send(m message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn.WriteJSON(m)
}

// Close closes the connection.
func (l *Live) Close() error {
	// A reader may wait for room in the queue. Close the queue before waiting for the reader.
	l.stop()
	l.events.close()
	err := l.conn.Close()
	<-l.done
	return err
}

// eventOverhead is the estimated memory of an event besides its output, in bytes: the struct and what it points to.
// Without it, a flood of empty events would count as nothing.
const eventOverhead = 512

// weight returns the size of an event in a queue, in bytes.
func weight(e proto.Event) int { return len(e.Data) + len(e.DataBase64) + eventOverhead }

// maxQueued bounds the bytes that wait for a slow terminal, such as a paused pager. Above it, reading stops and the
// daemon has to wait. The daemon drops clients that make it wait for long.
const maxQueued = 32 << 20

// A queue holds events between the connection and the code that prints them.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	list    []proto.Event
	bytes   int
	err     error // returned after the last event
	closed  bool
}

// newQueue returns an empty queue.
func newQueue() *queue {
	q := &queue{}
	q.changed.L = &q.mu
	return q
}

// put waits for room and appends an event. It returns false if the queue is closed.
func (q *queue) put(e proto.Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	// The limit is checked before the event is added. An event larger than the limit can thus still pass.
	for q.bytes >= maxQueued && !q.closed {
		q.changed.Wait()
	}
	if q.closed {
		return false
	}
	q.list = append(q.list, e)
	q.bytes += weight(e)
	q.changed.Broadcast()
	return true
}

// end marks the end of the events and sets the error that follows them.
func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
	q.changed.Broadcast()
}

// close wakes all waiting calls.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// take waits for the next event. After the last event it returns the error of end.
func (q *queue) take() (proto.Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && q.err == nil && !q.closed {
		q.changed.Wait()
	}
	if len(q.list) == 0 {
		if q.err == nil {
			return proto.Event{}, io.ErrClosedPipe
		}
		return proto.Event{}, q.err
	}
	e := q.list[0]
	// Clear the slot: the array behind the slice would otherwise keep the output in memory.
	q.list[0] = proto.Event{}
	q.list = q.list[1:]
	q.bytes -= weight(e)
	q.changed.Broadcast()
	return e, nil
}
