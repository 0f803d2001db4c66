// Package logtest has a log that a test reads while it is written.
package logtest

import (
	"bytes"
	"sync"
)

// A Buffer keeps what is written to it. It is safe for concurrent use. The zero Buffer is empty.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written until now.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
