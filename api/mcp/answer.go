package mcp

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/proto/sse"

	"github.com/go-json-experiment/json/jsontext"
)

// startStream is how long a tool call may take before its answer becomes an event stream. The stream tells the client
// that the call runs, and gives it an event ID to come back with if the connection breaks.
const startStream = 2 * time.Second

// An answerWriter is the http.ResponseWriter of the SDK for one request. The SDK always sends an event stream. Some
// clients take only 1 MiB of one event, so an answerWriter holds the stream back: if the first message is the answer,
// it is sent as application/json. If another message comes first, or none within startStream, the stream begins.
//
// It also holds back refusals of the SDK; see refusal.go.
type answerWriter struct {
	http.ResponseWriter
	refusal *bytes.Buffer // nil: the SDK has accepted the message

	mu      sync.Mutex // guards what follows, and writes
	held    []byte     // the beginning of the stream while it is held back
	decided bool       // whether the answer is a stream or JSON
	done    bool       // the request has ended
	timer   *time.Timer
}

// newAnswerWriter returns a writer for the answer to a message with this method. The answers of methods that send
// nothing before their result never become a stream.
func newAnswerWriter(w http.ResponseWriter, r *http.Request, method string) *answerWriter {
	l := &answerWriter{ResponseWriter: w, decided: r.Method != http.MethodPost}
	if l.decided {
		w.Header().Set("X-Accel-Buffering", "no") // nginx buffers events otherwise
	}
	if method == "tools/call" {
		l.timer = time.AfterFunc(startStream, l.beginStream)
	}
	return l
}

// finish stops the timer, so that nothing is written after the request.
func (l *answerWriter) finish() {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
}

// quietFor is how long a subscription may be quiet before a comment shows proxies that it is open.
const quietFor = 25 * time.Second

// keepAlive sends a comment at this interval while a stream is open, until stop.
func (l *answerWriter) keepAlive(every time.Duration) (stop func()) {
	done := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.sendComment()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		sender.Wait()
	}
}

// sendComment sends a line that clients ignore.
func (l *answerWriter) sendComment() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done || !l.decided || !l.isStream() {
		return
	}
	if _, err := l.ResponseWriter.Write([]byte(":\n\n")); err == nil {
		_ = http.NewResponseController(l.ResponseWriter).Flush() // as for all events, this is best effort
	}
}

// isStream reports whether the SDK sends an event stream.
func (l *answerWriter) isStream() bool {
	return strings.HasPrefix(l.Header().Get("Content-Type"), sse.ContentType)
}

// beginStream sends what is held back of a stream.
func (l *answerWriter) beginStream() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done || l.decided || !l.isStream() {
		return
	}
	l.release()
	_ = http.NewResponseController(l.ResponseWriter).Flush() // as for all events, this is best effort
}

// sendHeld sends the beginning of a stream that ended without a message, as when its session ended.
func (l *answerWriter) sendHeld() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.decided && len(l.held) > 0 {
		l.release()
	}
}

// release decides for a stream. The caller holds mu.
func (l *answerWriter) release() {
	l.decided = true
	l.Header().Set("X-Accel-Buffering", "no") // nginx buffers events otherwise
	l.ResponseWriter.WriteHeader(http.StatusOK)
	_, _ = l.ResponseWriter.Write(l.held) // a client that is gone is noticed at the next event
	l.held = nil
}

func (l *answerWriter) WriteHeader(status int) {
	if status == http.StatusBadRequest && strings.HasPrefix(l.Header().Get("Content-Type"), "text/plain") {
		l.refusal = &bytes.Buffer{}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided = true // only streams have an implicit status
	l.ResponseWriter.WriteHeader(status)
}

// Write takes one event of a stream. It removes the name of the event with the position for reconnecting: the protocol
// has no such name, and clients warn about unknown ones.
func (l *answerWriter) Write(p []byte) (int, error) {
	if l.refusal != nil {
		l.refusal.Write(p[:min(len(p), maxRefusal-l.refusal.Len())])
		return len(p), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	event := bytes.TrimPrefix(p, []byte("event: prime\n"))
	if !l.decided && l.isStream() {
		message, isMessage := dataOf(event)
		switch {
		case !isMessage:
			l.held = append(l.held, event...)
			return len(p), nil
		case isAnswer(message):
			l.decided = true
			l.Header().Set("Content-Type", "application/json")
			event = message
		default:
			l.release()
		}
	}
	n, err := l.ResponseWriter.Write(event)
	return min(n+len(p)-len(event), len(p)), err
}

// FlushError flushes unless the answer is held back. The SDK calls it after each event.
func (l *answerWriter) FlushError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.decided || l.refusal != nil {
		return nil
	}
	return http.NewResponseController(l.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (l *answerWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// dataOf returns the message of an event. An event with a position only has none.
func dataOf(event []byte) (message []byte, ok bool) {
	_, data, found := bytes.Cut(event, []byte("data: "))
	data = bytes.TrimRight(data, "\n")
	return data, found && len(data) > 0
}

// isAnswer reports whether a message is an answer rather than a notification or a request: it has no method.
func isAnswer(message []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(message))
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return false
		}
		switch name.String() {
		case "method":
			return false
		case "result", "error":
			return true
		}
		if d.SkipValue() != nil {
			return false
		}
	}
	return false
}
