// Package jsonlines answers a request with lines of JSON, each sent at once. The progress of imports, pulls and pushes
// of images is sent so; package native uses it.
package jsonlines

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// Media is the media type of an answer.
const Media = "application/x-ndjson"

// A Writer writes the lines of one answer. It is safe for concurrent use.
type Writer struct {
	header http.Header
	out    io.Writer
	rc     *http.ResponseController

	mu    sync.Mutex // held while a line is written, so that two do not mix
	begun bool
}

// New returns the Writer of an answer. Lines go to out, which may count them.
func New(w http.ResponseWriter, out io.Writer) *Writer {
	return &Writer{header: w.Header(), out: out, rc: http.NewResponseController(w)}
}

// HasBegun reports whether a line, and so the status, was sent.
func (l *Writer) HasBegun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// Write sends one line. It is marshalled before the lock and flushed under it: a buffered line shows no progress.
func (l *Writer) Write(line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		l.header.Set("Content-Type", Media)
		// A proxy must not buffer lines either.
		l.header.Set("X-Accel-Buffering", "no")
		_ = l.rc.EnableFullDuplex() // progress goes out while the archive comes in; HTTP/2 always can
	}
	if _, err := l.out.Write(append(text, '\n')); err != nil {
		return err
	}
	return l.rc.Flush()
}
