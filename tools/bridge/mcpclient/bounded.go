package mcpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"

	"berth/proto/sse"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// bounded ends an answer that is too large, and passes no answer to the SDK that the SDK cannot read. All calls share
// one session. The SDK breaks the session over such an answer, so that each call under way fails; over an error of the
// HTTP request, only that request's call fails.
type bounded struct {
	next http.RoundTripper
	most int64 // bytes of one answer
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	take, _ := r.Context().Value(takeKey{}).(func(int) error)
	res.Body = &limitedBody{res.Body, b.most, take}
	if r.Method == http.MethodPost {
		if err := checkAnswer(res, callOf(r)); err != nil {
			res.Body.Close()
			return nil, err
		}
	}
	return res, nil
}

// callOf returns the call that a request makes; nil: it makes none, and needs no answer.
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
	message, _ := jsonrpc.DecodeMessage(text)
	if call, ok := message.(*jsonrpc.Request); ok && call.IsCall() {
		return call
	}
	return nil
}

// checkAnswer reads and checks the answer to a message. A stream of events is checked as it is read.
func checkAnswer(res *http.Response, call *jsonrpc.Request) error {
	refused := res.StatusCode < 200 || res.StatusCode > 299
	if !refused && call == nil {
		return nil
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if !refused && kind == "text/event-stream" {
		res.Body = &eventStream{Closer: res.Body, in: sse.NewReader(res.Body, sse.Options{MaxEvent: math.MaxInt,
			Lenient: true})}
		return nil
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	message, _ := jsonrpc.DecodeMessage(text)
	answer, ok := message.(*jsonrpc.Response)
	switch {
	case refused && (!ok || answer.Error == nil):
		return fmt.Errorf("the server responded with status %d", res.StatusCode)
	case !refused && (kind != "application/json" || !ok || answer.ID != call.ID):
		return errors.New("the server's answer is not a JSON-RPC response to this call")
	}
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(text))
	return nil
}

var errTooLarge = errors.New("the server's answer is too large")

type takeKey struct{}

// withTake makes the answers to a context's requests reserve their bytes as they arrive. If take fails, so does the
// answer.
func withTake(ctx context.Context, take func(n int) error) context.Context {
	return context.WithValue(ctx, takeKey{}, take)
}

// A limitedBody fails beyond its limit.
type limitedBody struct {
	io.ReadCloser
	left int64
	take func(int) error // nil: the bytes are not reserved
}

// Read implements io.Reader.
func (l *limitedBody) Read(p []byte) (int, error) {
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

// An eventStream passes on the messages of a stream of events, each without its ID, and ends at the first event that
// is no message. Without IDs, the SDK does not ask for the rest of a stream that was cut off, which would break the
// session.
type eventStream struct {
	io.Closer
	in    *sse.Reader
	ready []byte // the rest of an event
}

// Read implements io.Reader.
func (e *eventStream) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		ev, err := e.in.Next()
		if err != nil {
			return 0, err
		}
		data := bytes.TrimSpace(ev.Data)
		if len(data) == 0 || ev.Name != "" && ev.Name != "message" {
			continue
		}
		if _, err := jsonrpc.DecodeMessage(data); err != nil {
			return 0, fmt.Errorf("reading an event from the server: %w", err)
		}
		data = bytes.ReplaceAll(data, []byte("\n"), []byte(" ")) // line breaks in JSON have no meaning
		e.ready = fmt.Appendf(nil, "data: %s\n\n", data)
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}
