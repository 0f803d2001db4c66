// Package sse reads and writes server-sent events.
//
// In: the framing of events, bounds for readers, flushing for writers. Out: what events mean. The API edges and the
// gateway write with it, the gateway and the client read with it.
package sse

import (
	"bytes"
	"net/http"
)

// ContentType is the media type of a stream of events.
const ContentType = "text/event-stream"

// An Event is one server-sent event. ID and Name must not hold line ends.
type Event struct {
	ID   string // a client that reconnects sends it as Last-Event-ID; "" leaves the field out
	Name string // "" leaves the field out
	Data []byte
}

// Append appends the encoded event to p. Each line of Data becomes one data field.
func (e Event) Append(p []byte) []byte {
	if e.ID != "" {
		p = append(append(append(p, "id: "...), e.ID...), '\n')
	}
	if e.Name != "" {
		p = append(append(append(p, "event: "...), e.Name...), '\n')
	}
	for line := range bytes.SplitSeq(e.Data, []byte("\n")) {
		p = append(append(append(p, "data: "...), line...), '\n')
	}
	return append(p, '\n')
}

// A Writer writes events to an HTTP response and flushes each. It is not safe for concurrent use.
type Writer struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// NewWriter returns a Writer. It writes nothing yet.
func NewWriter(w http.ResponseWriter) *Writer {
	return &Writer{w: w, rc: http.NewResponseController(w)}
}

// WriteHeader sends the status 200 and the headers of a stream. contentType is ContentType, with parameters if the
// caller wants any.
func (w *Writer) WriteHeader(contentType string) {
	h := w.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx buffers events otherwise
	w.w.WriteHeader(http.StatusOK)
}

// Write writes one event and flushes it.
func (w *Writer) Write(e Event) error { return w.write(e.Append(nil)) }

// WriteComment writes an empty comment, which readers ignore, and flushes it. Comments keep proxies from closing a
// silent stream and detect clients that have gone.
func (w *Writer) WriteComment() error { return w.write([]byte(":\n\n")) }

func (w *Writer) write(p []byte) error {
	if _, err := w.w.Write(p); err != nil {
		return err
	}
	return w.Flush()
}

// Flush sends buffered bytes to the client.
func (w *Writer) Flush() error { return w.rc.Flush() }
