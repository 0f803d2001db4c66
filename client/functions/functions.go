// Package functions has code in a container call functions of this program, as docs/tools.md describes. The code_tools
// of the container must allow their names. Stored tools, which the daemon runs itself, are in package client.
package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"berth/client"
	"berth/proto"

	"github.com/gorilla/websocket"
)

const (
	longestResult = 4 << 20 // bytes; the daemon's limit
	goodbyeMost   = time.Second
	firstPause    = 100 * time.Millisecond
	longestPause  = 5 * time.Second // between two tries to connect
)

// A Function is called by code. Its context ends when the code no longer waits, or the server is closed.
type Function struct {
	proto.ToolSpec
	Call func(ctx context.Context, input json.RawMessage) (result any, err error)
}

// Of returns the function fn, whose input is decoded from JSON and whose result becomes JSON.
func Of[In, Out any](spec proto.ToolSpec, fn func(context.Context, In) (Out, error)) Function {
	return Function{ToolSpec: spec, Call: func(ctx context.Context, input json.RawMessage) (any, error) {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, &Error{Type: "ValueError", Message: err.Error()}
		}
		return fn(ctx, in)
	}}
}

// An Error arrives in the code as an exception of this type: PermissionError, NameError, ValueError, TimeoutError or
// RuntimeError. Other errors of a Function are a RuntimeError with their text.
type Error proto.CallError

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// A message goes to the daemon or comes from it. Its type says which fields it has.
type message struct {
	Type   string           `json:"type"`
	Tools  json.RawMessage  `json:"tools,omitempty"` // to it: specs; from it: names
	CallID string           `json:"call_id,omitempty"`
	Tool   string           `json:"tool,omitempty"`
	Input  json.RawMessage  `json:"input,omitempty"`
	Result json.RawMessage  `json:"result,omitempty"`
	Error  *proto.CallError `json:"error,omitempty"`
}

// A Server answers calls until it is closed. It survives a broken connection and a restart of the daemon, and never
// calls a function twice for one call.
type Server struct {
	Names []string // that code may call; others are not allowed by the container

	client    *client.Client
	container string
	functions map[string]Function
	stop      context.CancelFunc
	done      chan struct{} // closed when err is set
	err       error
	calls     sync.WaitGroup
	writing   sync.Mutex // held while writing a message

	mu      sync.Mutex // guards what follows
	conn    *websocket.Conn
	running map[string]context.CancelFunc // by the ID of the call
	kept    answers
}

// Serve answers calls with these functions. It returns when code can call them. The server ends with ctx.
func Serve(ctx context.Context, c *client.Client, container string, list ...Function) (*Server, error) {
	s := &Server{client: c, container: container, functions: map[string]Function{}, done: make(chan struct{}),
		running: map[string]context.CancelFunc{}}
	for _, f := range list {
		s.functions[f.Name] = f
	}
	ctx, s.stop = context.WithCancel(ctx)
	conn, unhook, err := s.connect(ctx)
	if err != nil {
		s.stop()
		return nil, err
	}
	go func() {
		defer close(s.done)
		defer s.calls.Wait()
		defer s.stop()
		s.err = s.run(ctx, conn, unhook)
	}()
	return s, nil
}

// Close ends the server. Open calls fail, unless another client serves the same functions.
func (s *Server) Close() error {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	// With this, the daemon does not wait for the client to come back. A connection that broke cannot send it.
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(goodbyeMost))
	s.stop()
	<-s.done
	if errors.Is(s.err, context.Canceled) {
		return nil
	}
	return s.err
}

// Done is closed when the server has ended, by Close, with its context, or because the container is gone.
func (s *Server) Done() <-chan struct{} { return s.done }

// connect opens a connection and tells the daemon what is served. The end of ctx closes the connection, until unhook is
// called.
func (s *Server) connect(ctx context.Context) (conn *websocket.Conn, unhook func() bool, err error) {
	path := "/v1/containers/" + url.PathEscape(s.container) + "/tools"
	err = s.client.Redo(ctx, func() (err error) { // nothing was sent yet
		conn, unhook, err = s.client.Socket(ctx, path, nil)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	specs := make([]proto.ToolSpec, 0, len(s.functions))
	for _, f := range s.functions {
		specs = append(specs, f.ToolSpec)
	}
	text, err := json.Marshal(specs)
	if err == nil {
		err = conn.WriteJSON(message{Type: "serve", Tools: text})
	}
	var m message
	if err == nil {
		err = conn.ReadJSON(&m)
	}
	if err == nil && m.Type == "serving" {
		err = json.Unmarshal(m.Tools, &s.Names)
	} else if err == nil {
		err = proto.Invalid("tools", "the daemon refused the functions: %s", m.reason())
	}
	if err != nil {
		unhook()
		conn.Close()
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	return conn, unhook, nil
}

// reason returns the message of an error.
func (m message) reason() string {
	if m.Error == nil {
		return "it sent " + m.Type
	}
	return m.Error.Message
}

// run answers calls, and connects again where the connection breaks, until the daemon refuses that.
func (s *Server) run(ctx context.Context, conn *websocket.Conn, unhook func() bool) error {
	for {
		s.read(ctx, conn)
		unhook()
		conn.Close()
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
			var err error
			if conn, unhook, err = s.connect(ctx); err == nil {
				break
			}
			var known *proto.Error
			if errors.As(err, &known) && known.Code != proto.Unavailable && known.Code != proto.TooMany {
				return err
			}
		}
	}
}

// read begins the calls that come, until the connection breaks.
func (s *Server) read(ctx context.Context, conn *websocket.Conn) {
	for {
		var m message
		if err := conn.ReadJSON(&m); err != nil {
			return // run connects again
		}
		switch m.Type {
		case "call":
			s.begin(ctx, m)
		case "cancel":
			s.mu.Lock()
			if cancel := s.running[m.CallID]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
		}
	}
}

// begin begins a call. After a broken connection the daemon repeats what has no answer yet.
func (s *Server) begin(ctx context.Context, m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := s.kept.byID[m.CallID]; text != nil {
		s.calls.Go(func() { s.send(text) })
		return
	}
	if s.running[m.CallID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.running[m.CallID] = cancel
	s.calls.Go(func() {
		defer cancel()
		text := s.answer(ctx, m)
		s.mu.Lock()
		delete(s.running, m.CallID)
		s.kept.add(m.CallID, text)
		s.mu.Unlock()
		s.send(text)
	})
}

// answer calls the function, and returns the message with its result.
func (s *Server) answer(ctx context.Context, m message) []byte {
	f, ok := s.functions[m.Tool]
	if !ok {
		return failed(m.CallID, &Error{Type: "NameError", Message: fmt.Sprintf("tool %s is not served here", m.Tool)})
	}
	value, err := f.Call(ctx, m.Input)
	if err != nil {
		return failed(m.CallID, err)
	}
	result, err := json.Marshal(value)
	if err == nil && len(result) > longestResult {
		err = fmt.Errorf("the result has %d bytes; %d is the limit; give back less, or put it into a file",
			len(result), longestResult)
	}
	if err != nil {
		return failed(m.CallID, err)
	}
	text, err := json.Marshal(message{Type: "result", CallID: m.CallID, Result: result})
	if err != nil {
		return failed(m.CallID, err)
	}
	return text
}

// failed returns the message for a call that failed.
func failed(call string, err error) []byte {
	out := &proto.CallError{Type: "RuntimeError", Message: err.Error()}
	var chosen *Error
	if errors.As(err, &chosen) {
		out.Type = chosen.Type
	}
	text, _ := json.Marshal(message{Type: "error", CallID: call, Error: out}) // texts alone, which always are JSON
	return text
}

// send sends an answer. If the connection breaks, the daemon asks for it again.
func (s *Server) send(text []byte) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = conn.WriteMessage(websocket.TextMessage, text)
}
