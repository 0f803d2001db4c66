// Package intake stores the bytes of an upload in a file and computes their hash. It reads, writes and hashes at the
// same time. It does not know limits and records; the file store calls it.
package intake

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// blockBytes is how much of an upload is read, written and hashed at a time. blocks is how many blocks are in memory:
// one for each of the three steps, and as many between them. With fewer, one slow step would stop the other two.
const (
	blockBytes = 256 << 10
	blocks     = 6
)

// startBytes is how much is written before the kernel is asked to start writing to the disk. That shortens the wait
// for the sync at the end.
const startBytes = 8 << 20

// An intake is one call of Copy. Blocks are read, then written, then hashed. Each step has its own goroutine, since
// each takes about as long. An upload smaller than a block needs no goroutines.
type intake struct {
	admit func(p []byte) error
	file  *os.File
	hash  hash.Hash

	free    chan []byte
	read    chan []byte
	written chan []byte

	stored  int64         // bytes in the file
	started int64         // of these, bytes that the kernel has started to write to the disk
	broken  chan struct{} // closed after err is set
	err     error         // from writing
}

// Copy stores r up to its end in the file and returns the SHA-256 in hex. admit is called for all bytes before they
// are written, and may refuse them. Copy fails with the error of r, of admit, or of the file.
func Copy(file *os.File, r io.Reader, admit func(p []byte) error) (sum string, err error) {
	in := &intake{admit: admit, file: file, hash: sha256.New(), broken: make(chan struct{})}
	block := make([]byte, blockBytes)
	n, err := in.fill(block, r)
	if err == nil {
		err = in.stream(block, r)
	} else if err == io.EOF { // compare the value itself: a wrapped io.EOF means something else
		err = in.store(block[:n])
		in.hash.Write(block[:n])
	}
	return hex.EncodeToString(in.hash.Sum(nil)), err
}

// stream stores the rest of r, after a first block that is full.
func (in *intake) stream(block []byte, r io.Reader) error {
	in.free, in.read, in.written = make(chan []byte, blocks), make(chan []byte, blocks), make(chan []byte, blocks)
	for range blocks - 1 {
		in.free <- nil // allocated when needed
	}
	hashed := make(chan struct{})
	go func() {
		defer close(in.written)
		for block := range in.read {
			if in.err == nil {
				if in.err = in.store(block); in.err != nil {
					close(in.broken)
				}
			}
			in.written <- block
		}
	}()
	go func() {
		defer close(hashed)
		for block := range in.written {
			in.hash.Write(block)
			in.free <- block
		}
	}()
	err := in.readAll(block, r)
	close(in.read)
	<-hashed // after this no goroutine uses the file
	if in.err != nil {
		return in.err // this is why r was not read to its end
	}
	return err
}

// readAll reads r into blocks until it ends and passes them on. The first block is full already.
func (in *intake) readAll(block []byte, r io.Reader) error {
	for n, err := len(block), error(nil); ; n, err = in.fill(block, r) {
		if err != nil && err != io.EOF {
			return err
		}
		in.read <- block[:n]
		if err == io.EOF {
			return nil
		}
		select {
		case <-in.broken:
			return nil
		case block = <-in.free:
		}
		if block == nil {
			block = make([]byte, blockBytes)
		}
		block = block[:blockBytes]
	}
}

// fill fills a block like io.ReadFull, but returns the reader's own error, and asks admit.
func (in *intake) fill(block []byte, r io.Reader) (n int, err error) {
	for n < len(block) && err == nil {
		var m int
		m, err = r.Read(block[n:])
		n += m
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("reading the upload: %w", err)
	}
	if refused := in.admit(block[:n]); refused != nil {
		err = refused
	}
	return n, err
}

// store writes one block.
func (in *intake) store(p []byte) error {
	if _, err := in.file.Write(p); err != nil {
		return fmt.Errorf("storing the upload: %w", err)
	}
	in.stored += int64(len(p))
	if in.stored-in.started >= startBytes {
		// If this fails, the sync at the end fails too.
		_ = unix.SyncFileRange(int(in.file.Fd()), in.started, in.stored-in.started, unix.SYNC_FILE_RANGE_WRITE)
		in.started = in.stored
	}
	return nil
}
