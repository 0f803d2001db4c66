package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/proto/sse"
)

// maxMessage bounds one message of a Bridge's client, in bytes, as the daemon does.
const maxMessage = 4 << 20

// farewell is how long the daemon has to end a session, in which the session's container is deleted.
const farewell = 30 * time.Second

// A Bridge carries messages of the Model Context Protocol between a client that speaks them over pipes, one a line,
// and the daemon. It adds nothing: what the daemon can do, and what it answers, is the daemon's.
type Bridge struct {
	Client    *Client
	Container string       // where the session works; "" is one of its own
	Image     string       // of that; "" is the daemon's default
	Note      func(string) // told what a person should know; nil: nobody is

	out io.Writer
	mu  sync.Mutex // guards what follows, and has one message be written after the other

	session string          // ID that the daemon gave; "" before initialize
	version string          // of the protocol, that both sides agreed on
	hello   json.RawMessage // the client's initialize, for another session

	renewal sync.Mutex // held while a session is begun again
}

// envelope of a message: what a bridge must know of it.
type rpcMessage struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	Result struct {
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"result"`
	Params struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"` // of versions without sessions
		} `json:"_meta"`
	} `json:"params"`
}

// isCall reports whether the message waits for an answer.
func (m rpcMessage) isCall() bool { return m.Method != "" && len(m.ID) > 0 }

// Run carries messages until in ends and what was asked by then is answered, or ctx ends. Then the session ends too.
func (b *Bridge) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	b.out = out
	defer b.leave(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() { failed <- readLines(ctx, in, lines) }()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		select {
		case line := <-lines:
			b.take(ctx, line, &calls)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readLines gives each line of in that is not empty to lines.
func readLines(ctx context.Context, in io.Reader, lines chan<- []byte) error {
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxMessage)
	for scan.Scan() {
		line := bytes.Clone(bytes.TrimSpace(scan.Bytes()))
		if len(line) == 0 {
			continue
		}
		select {
		case lines <- line:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		return proto.Errorf(proto.TooLarge, "", "stdin", "a message on standard input has more than %d bytes, which "+
			"is the limit", maxMessage)
	}
	return scan.Err()
}

// take sends one message on. Calls take their time side by side; all else, and what begins a session, keeps its place.
func (b *Bridge) take(ctx context.Context, line []byte, calls *sync.WaitGroup) {
	var m rpcMessage
	if err := json.Unmarshal(line, &m); err != nil {
		b.write(rpcFailure(nil, -32700, "the message is not JSON of the protocol: "+err.Error()))
		return
	}
	if !m.isCall() || m.Method == "initialize" {
		b.carry(ctx, m, line)
		return
	}
	calls.Go(func() { b.carry(ctx, m, line) })
}

// carry sends a message and passes on what is answered. A session that the daemon does not know any more is begun
// again, once.
func (b *Bridge) carry(ctx context.Context, m rpcMessage, line []byte) {
	session := b.current()
	err := b.post(ctx, m, line, b.pass)
	if errors.Is(err, errNoSession) && m.Method != "initialize" {
		if err = b.renew(ctx, session); err == nil {
			err = b.post(ctx, m, line, b.pass)
		}
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	b.note(err.Error())
	if m.isCall() {
		b.write(rpcFailure(m.ID, -32000, err.Error()))
	}
}

// errNoSession says that the daemon does not know the session, as after a restart.
var errNoSession = proto.Errorf(proto.NotFound, "", "session", "the daemon does not know the session any more")

func (b *Bridge) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

// renew begins a session again in place of one that is gone.
func (b *Bridge) renew(ctx context.Context, gone string) error {
	b.renewal.Lock()
	defer b.renewal.Unlock()
	b.mu.Lock()
	hello := b.hello
	done := b.session != gone // somebody else did
	if !done {
		b.session = ""
	}
	b.mu.Unlock()
	if done || hello == nil {
		return nil
	}
	b.note("the daemon does not know the session any more; beginning a new one")
	if err := b.post(ctx, rpcMessage{Method: "initialize", ID: json.RawMessage("0")}, hello,
		func([]byte) {}); err != nil {
		return err
	}
	return b.post(ctx, rpcMessage{Method: "notifications/initialized"},
		[]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), b.pass)
}

// post sends one message and gives each of what comes back to pass.
func (b *Bridge) post(ctx context.Context, m rpcMessage, line []byte, pass func([]byte)) error {
	req, err := b.request(ctx, http.MethodPost, bytes.NewReader(line))
	if err != nil {
		return err
	}
	if v := m.Params.Meta.Version; v != "" {
		req.Header.Set("Mcp-Protocol-Version", v)
	}
	res, err := b.Client.http.Do(req)
	if err != nil {
		return b.Client.broken(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return b.refused(req, res, m, pass)
	}
	if m.Method == "initialize" {
		b.begun(res, line)
	}
	answered := !m.isCall()
	err = eachMessage(res, func(data []byte) {
		var got rpcMessage
		if json.Unmarshal(data, &got) != nil {
			return
		}
		answered = answered || got.Method == ""
		b.agreed(m, got)
		pass(data)
	})
	if err == nil && !answered {
		err = io.ErrUnexpectedEOF
	}
	return b.Client.broken(ctx, err)
}

// request is one to the daemon's endpoint.
func (b *Bridge) request(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.Client.url("/mcp", nil), body)
	if err != nil {
		return nil, err
	}
	b.Client.headers(req.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, value := range map[string]string{"Mcp-Session-Id": b.session, "Mcp-Protocol-Version": b.version,
		"Berth-Container": b.Container, "Berth-Image": b.Image} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// refused is what the daemon says against a request. An answer to the message itself is passed on.
func (b *Bridge) refused(req *http.Request, res *http.Response, asked rpcMessage, pass func([]byte)) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // half a body is no error of ours either
	if res.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "" {
		return errNoSession
	}
	var m rpcMessage
	switch err := json.Unmarshal(data, &m); {
	case err != nil || m.Error == nil || m.Error.Message == "":
		return b.Client.failureOf("", res.StatusCode, data)
	case asked.isCall() && bytes.Equal(m.ID, asked.ID):
		pass(data)
		return nil
	default:
		return proto.Errorf(codeOf(res.StatusCode), "", b.Client.Host(), "%s", m.Error.Message)
	}
}

// begun notes what a new session is called, and how the client began it.
func (b *Bridge) begun(res *http.Response, hello []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.hello, b.version = res.Header.Get("Mcp-Session-Id"), hello, ""
}

// agreed notes the version of the protocol, which every later request names.
func (b *Bridge) agreed(asked, got rpcMessage) {
	if asked.Method == "initialize" && got.Result.ProtocolVersion != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.version = got.Result.ProtocolVersion
	}
}

// eachMessage gives each message of an answer to fn: the one that it is, or those of its events.
func eachMessage(res *http.Response, fn func([]byte)) error {
	if !strings.HasPrefix(res.Header.Get("Content-Type"), sse.ContentType) {
		data, err := io.ReadAll(res.Body)
		if len(bytes.TrimSpace(data)) > 0 {
			fn(data)
		}
		return err
	}
	events := sse.NewReader(res.Body, sse.Options{MaxEvent: maxProgress})
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fn(event.Data)
	}
}

// pass gives the client a message of the daemon's, on one line.
func (b *Bridge) pass(data []byte) {
	var line bytes.Buffer
	if json.Compact(&line, data) == nil {
		b.write(line.Bytes())
	}
}

func (b *Bridge) write(line []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.out.Write(append(line, '\n')) // a client that is gone ends its side of in, too
}

// rpcFailure is an answer that says that there is none.
func rpcFailure(id json.RawMessage, code int, message string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	// always can be
	data, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code,
		"message": message}})
	return data
}

func (b *Bridge) note(text string) {
	if b.Note != nil {
		b.Note(text)
	}
}

// leave ends the session, whatever ended the bridge.
func (b *Bridge) leave(ctx context.Context) {
	if b.current() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	req, err := b.request(ctx, http.MethodDelete, nil)
	if err != nil {
		return
	}
	res, err := b.Client.http.Do(req)
	if err != nil {
		b.note("the session could not be ended: " + reason(err))
		return
	}
	_ = res.Body.Close()
}
