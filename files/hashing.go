package files

import (
	"crypto/sha256"
	"hash"
)

// blockBytes is how much of an upload is written and hashed at a time, and blocks how many of those there are in memory: one
// that is being filled while others are hashed.
const (
	blockBytes = 256 << 10
	blocks     = 3
)

// A hashing computes the SHA-256 of what passes beside the reading and writing of it, which takes as long.
type hashing struct {
	sum  hash.Hash
	free chan []byte
	full chan []byte
	done chan struct{}
}

func newHashing() *hashing {
	h := &hashing{sum: sha256.New(), free: make(chan []byte, blocks), full: make(chan []byte, blocks), done: make(chan struct{})}
	for range blocks {
		h.free <- nil // made when it is needed: most uploads are short
	}
	go h.run()
	return h
}

func (h *hashing) run() {
	defer close(h.done)
	for b := range h.full {
		_, _ = h.sum.Write(b) // never fails
		h.free <- b
	}
}

// block is room for what comes next. It waits for the hash where that is behind.
func (h *hashing) block() []byte {
	b := <-h.free
	if b == nil {
		b = make([]byte, blockBytes)
	}
	return b[:blockBytes]
}

// add takes the block that was got last, as far as it was filled. Nobody may write to it any more.
func (h *hashing) add(b []byte) { h.full <- b }

// end waits for the sum.
func (h *hashing) end() []byte {
	close(h.full)
	<-h.done
	return h.sum.Sum(nil)
}
