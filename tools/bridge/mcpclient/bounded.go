package mcpclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// bounded ends an answer that is larger than it may be, and gives no answer to the SDK that this cannot read. All
// calls share one session, which the SDK breaks over such an answer, so that each call that is under way fails; over
// an error of a request only its own call does.
type bounded struct {
	next http.RoundTripper
	most int64
}

// RoundTrip is http.RoundTripper's.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	take, _ := r.Context().Value(takeKey{}).(func(int) error)
	res.Body = &limited{res.Body, b.most, take}
	if r.Method != http.MethodPost {
		return res, nil
	}
	if err := settle(res, callOf(r)); err != nil {
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// callOf is the call that a request makes; nil: it makes none, and needs no answer.
func callOf(r *http.Request) *jsonrpc.Request {
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	text, _ := io.ReadAll(body)
	asked, _ := jsonrpc.DecodeMessage(text)
	if call, ok := asked.(*jsonrpc.Request); ok && call.IsCall() {
		return call
	}
	return nil
}

// settle reads what a server says to a message, but for a stream of events, which is read as it comes.
func settle(res *http.Response, call *jsonrpc.Request) error {
	refused := res.StatusCode < 200 || res.StatusCode > 299
	if !refused && call == nil {
		return nil
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if !refused && kind == "text/event-stream" {
		res.Body = &events{body: res.Body, lines: bufio.NewReader(res.Body)}
		return nil
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	said, _ := jsonrpc.DecodeMessage(text)
	answer, ok := said.(*jsonrpc.Response)
	switch {
	case refused && (!ok || answer.Error == nil):
		return fmt.Errorf("the server said %d", res.StatusCode)
	case !refused && (kind != "application/json" || !ok || answer.ID != call.ID):
		return errors.New("the server's answer is not one of JSON-RPC to this call")
	}
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(text))
	return nil
}

var errTooLarge = errors.New("the server's answer is too large")

type takeKey struct{}

// taking has the bytes of answers to a context's requests taken as they come; where take fails, so does the answer.
func taking(ctx context.Context, take func(n int) error) context.Context {
	return context.WithValue(ctx, takeKey{}, take)
}

type limited struct {
	io.ReadCloser
	left int64
	take func(int) error // nil: nobody counts them
}

// Read is io.Reader's.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLarge
	}
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	if l.take != nil {
		if full := l.take(n); full != nil {
			return 0, full
		}
	}
	return n, err
}

// events is a stream of events, of each no more than its message, and none behind one that is no message: to the SDK,
// a stream that ends is a call without an answer. Without the events' IDs it does not ask for the rest of a stream
// that was cut off, which it would break the session over.
type events struct {
	body  io.Closer
	lines *bufio.Reader
	ready []byte // of an event that is whole
	err   error  // what comes behind it
}

// Read is io.Reader's.
func (e *events) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.ready, e.err = e.next()
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

// Close is io.Closer's.
func (e *events) Close() error { return e.body.Close() }

// next reads the next event; nothing, where it says nothing.
func (e *events) next() (event []byte, err error) {
	var name, data []byte
	for {
		line, err := e.lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		field, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		switch string(field) {
		case "event":
			name = bytes.TrimSpace(value)
		case "data":
			data = append(append(data, ' '), bytes.TrimSpace(value)...) // JSON has no line breaks that mean anything
		}
		if err == nil && len(bytes.TrimRight(line, "\r\n")) > 0 {
			continue
		}
		if data = bytes.TrimSpace(data); len(data) == 0 || len(name) > 0 && string(name) != "message" {
			return nil, err
		}
		if _, bad := jsonrpc.DecodeMessage(data); bad != nil {
			return nil, fmt.Errorf("an event of the server's: %w", bad)
		}
		return append(append([]byte("data: "), data...), "\n\n"...), err
	}
}
