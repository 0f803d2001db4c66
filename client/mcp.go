package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/proto/sse"
)

// maxMessage bounds one message of a Bridge's client, in bytes. The daemon has the same limit.
const maxMessage = 4 << 20

// endTimeout is the time for the daemon to end a session, which includes the deletion of the session's container.
const endTimeout = 30 * time.Second

// A Bridge transfers messages of the Model Context Protocol between the daemon and a client that uses pipes, with one
// message a line. It adds no function of its own: all answers come from the daemon.
type Bridge struct {
	Client      *Client
	Container   string            // the session's container; "": a new one
	Image       string            // image of a new container; "": the daemon's default
	Confinement proto.Confinement // of a new container, and of those that single calls get
	Note        func(string)      // receives messages for the user; nil: none

	out io.Writer
	mu  sync.Mutex // guards the fields below and serializes writes

	session string          // ID from the daemon; "" before initialize
	version string          // negotiated version of the protocol
	hello   json.RawMessage // the client's initialize message, for a new session
	tells   bool            // the daemon sends notifications of its own to the session

	renewal sync.Mutex // held while a session is renewed

	streams context.Context // of streams that end with the client's input
	calls   sync.WaitGroup  // calls and streams
	singles singles
}

// An rpcMessage has the fields of a message that a Bridge needs.
type rpcMessage struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	Result struct {
		ProtocolVersion string `json:"protocolVersion"`
		Capabilities    struct {
			Tools struct {
				ListChanged bool `json:"listChanged"`
			} `json:"tools"`
		} `json:"capabilities"`
	} `json:"result"`
	Params struct {
		Name      json.RawMessage `json:"name"`
		URI       json.RawMessage `json:"uri"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"` // in protocol versions without sessions
		} `json:"_meta"`
	} `json:"params"`
}

// isCall reports whether the message expects an answer.
func (m rpcMessage) isCall() bool { return m.Method != "" && len(m.ID) > 0 }

// Run transfers messages until in ends and all calls are answered, or until ctx ends. Then it ends the session.
func (b *Bridge) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	b.out = out
	defer b.endSession(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() { failed <- readLines(ctx, in, lines) }()
	defer b.calls.Wait()
	streams, endStreams := context.WithCancel(ctx)
	defer endStreams()
	b.streams = streams
	for {
		select {
		case line := <-lines:
			b.sendMessage(ctx, line)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readLines sends each non-empty line of in to lines.
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

// sendMessage sends one message to the daemon. Calls run concurrently. Other messages and initialize are sent in order.
func (b *Bridge) sendMessage(ctx context.Context, line []byte) {
	var m rpcMessage
	if err := json.Unmarshal(line, &m); err != nil {
		b.write(rpcFailure(nil, -32700, "the message is not JSON of the protocol: "+err.Error()))
		return
	}
	switch {
	case m.isSingle():
		b.sendSingle(ctx, m, line)
	case m.Method == "notifications/cancelled" && b.singles.cancel(m.Params.RequestID):
	case !m.isCall() || m.Method == "initialize":
		b.exchange(ctx, m, line)
		if m.Method == initialized {
			b.followSession()
		}
	default:
		b.calls.Go(func() { b.exchange(ctx, m, line) })
	}
}

// initialized is the notification after which a session is ready.
const initialized = "notifications/initialized"

// exchange sends a message and passes on the answer. If the daemon does not know the session, exchange renews it, once.
func (b *Bridge) exchange(ctx context.Context, m rpcMessage, line []byte) {
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

// errNoSession means that the daemon does not know the session, such as after a restart.
var errNoSession = proto.Errorf(proto.NotFound, "", "session", "the daemon does not know the session any more")

func (b *Bridge) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

// renew starts a new session in place of a lost one.
func (b *Bridge) renew(ctx context.Context, gone string) error {
	b.renewal.Lock()
	defer b.renewal.Unlock()
	b.mu.Lock()
	hello := b.hello
	done := b.session != gone // another call renewed it
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
	if err := b.post(ctx, rpcMessage{Method: initialized},
		[]byte(`{"jsonrpc":"2.0","method":"`+initialized+`"}`), b.pass); err != nil {
		return err
	}
	b.followSession()
	return nil
}

// post sends one message and calls pass for each message of the answer.
func (b *Bridge) post(ctx context.Context, m rpcMessage, line []byte, pass func([]byte)) error {
	req, err := b.request(ctx, http.MethodPost, bytes.NewReader(line))
	if err != nil {
		return err
	}
	if m.isSingle() {
		m.setHeaders(req.Header)
	}
	res, err := b.Client.http.Do(req)
	if err != nil {
		return b.Client.broken(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return b.refusal(req, res, m, pass)
	}
	if m.Method == "initialize" {
		b.recordSession(res, line)
	}
	answered := !m.isCall()
	err = eachMessage(res, func(data []byte) {
		var got rpcMessage
		if json.Unmarshal(data, &got) != nil {
			return
		}
		answered = answered || got.Method == ""
		b.recordVersion(m, got)
		pass(data)
	})
	if err == nil && !answered {
		err = io.ErrUnexpectedEOF
	}
	return b.Client.broken(ctx, err)
}

// request builds a request to the daemon's MCP endpoint.
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
		"Berth-Container": b.Container, "Berth-Image": b.Image,
		"Berth-Runtime-Class": string(b.Confinement.RuntimeClass), "Berth-Cpus": nonZero(b.Confinement.Limits.CPUs),
		"Berth-Memory-Bytes": nonZero(b.Confinement.Limits.MemoryBytes),
		"Berth-Pids":         nonZero(b.Confinement.Limits.PIDs),
		"Berth-Disk-Bytes":   nonZero(b.Confinement.Limits.DiskBytes),
		"Berth-Open-Files":   nonZero(b.Confinement.Limits.OpenFiles)} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// nonZero writes a number; "" for 0.
func nonZero[T int64 | float64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// refusal returns the error of a request that the daemon refused. If the body answers the message itself, refusal
// passes it on.
func (b *Bridge) refusal(req *http.Request, res *http.Response, asked rpcMessage, pass func([]byte)) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // a truncated body is handled like any other
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

// recordSession records the ID of a new session and the client's initialize message.
func (b *Bridge) recordSession(res *http.Response, hello []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.hello, b.version, b.tells = res.Header.Get("Mcp-Session-Id"), hello, "", false
}

// recordVersion records the negotiated protocol version, which later requests name.
func (b *Bridge) recordVersion(asked, got rpcMessage) {
	if asked.Method == "initialize" && got.Result.ProtocolVersion != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.version, b.tells = got.Result.ProtocolVersion, got.Result.Capabilities.Tools.ListChanged
	}
}

// eachMessage calls fn for each message of an answer: the whole body, or the data of each event.
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

// pass writes a message of the daemon to the client, on one line.
func (b *Bridge) pass(data []byte) {
	var line bytes.Buffer
	if json.Compact(&line, data) == nil {
		b.write(line.Bytes())
	}
}

func (b *Bridge) write(line []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.out.Write(append(line, '\n')) // if the client is gone, in ends too
}

// rpcFailure returns an error answer.
func rpcFailure(id json.RawMessage, code int, message string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	// cannot fail for these types
	data, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code,
		"message": message}})
	return data
}

func (b *Bridge) note(text string) {
	if b.Note != nil {
		b.Note(text)
	}
}

// endSession ends the session, even after an error or a cancellation.
func (b *Bridge) endSession(ctx context.Context) {
	if b.current() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
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
