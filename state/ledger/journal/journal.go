// Package journal has the file in which updates of the ledger wait for the database: append, sync, and replay after a
// crash.
//
// In scope: the format of the file, its size, and which part of it is on disk. Out of scope: what the updates mean,
// when they move to the database, and who waits for a sync. Package ledger, the only caller, decides that. Its lock
// commitMu guards a Journal; only Dirty and Sync may run without it.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Journal is a file beside the database. It holds the updates that the database does not have yet, one frame each.
// The file is overwritten from its beginning again and again, because blocks that are already allocated need the
// shortest sync and no free space on a full disk.
//
// A frame is a header and the changes of one update. The header names the epoch in which the frame was written. A
// checkpoint ends the epoch, and frames of earlier epochs do not count. The database records the epoch that continues
// its state. Frames are therefore only ever applied to the state that they were made on.
//
//	epoch  8 bytes
//	size   4 bytes, of the changes
//	check  4 bytes: CRC-32C of all else
//	changes, each: 0 or 1, size of the key, key; for 1 (a put) also size of the value, value. Sizes are uvarints.
type Journal struct {
	f      *os.File
	epoch  uint64
	at     int64 // where the next frame goes
	broken bool  // a sync failed: it is unknown which frames of this epoch are on disk

	written, synced atomic.Uint64 // number of writes, and how many of them are on disk
}

// Dirty reports whether written frames are not yet on disk.
func (j *Journal) Dirty() bool { return j.written.Load() != j.synced.Load() }

// MaxSize is the largest size of the file in bytes. It bounds what the next start reads and what one checkpoint writes.
const MaxSize = 1 << 20

// HeaderSize is the size of a frame's header in bytes.
const HeaderSize = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFull means that the journal takes no frames before the next checkpoint.
var errFull = errors.New("the journal is full or broken")

// Open opens or creates the journal at path. syncDir syncs the names in a directory to disk.
func Open(path string, syncDir func(dir string) error) (*Journal, error) {
	_, missing := os.Stat(path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if missing != nil { // or a power cut could remove the name, and the file with it
		if err := syncDir(filepath.Dir(path)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return &Journal{f: f}, nil
}

// Prepare allocates the journal's space on disk, so that no sync has to. On a small disk the file grows as it is
// written instead.
func (j *Journal) Prepare() {
	fi, err := j.f.Stat()
	if err != nil || fi.Size() >= MaxSize || unix.Fallocate(int(j.f.Fd()), 0, 0, MaxSize) != nil {
		return
	}
	// Blocks that are allocated but never written would make the first sync update the file system's metadata.
	_, _ = j.f.WriteAt(make([]byte, MaxSize-fi.Size()), fi.Size())
	_ = j.f.Sync()
}

// Restart begins a new epoch. Nothing of the last epoch is needed any more.
func (j *Journal) Restart(epoch uint64) {
	j.epoch, j.at, j.broken = epoch, 0, false
	j.synced.Store(j.written.Load())
}

// Add writes whole frames. When it returns they survive the death of the daemon, but not a power cut. If it fails,
// none of them counts.
func (j *Journal) Add(frames []byte) error {
	if j.broken || j.at+int64(len(frames)) > MaxSize {
		return errFull
	}
	if len(frames) == 0 {
		return nil
	}
	if _, err := j.f.WriteAt(frames, j.at); err != nil {
		_, _ = j.f.WriteAt(make([]byte, HeaderSize), j.at) // the first of them may be complete
		return err
	}
	j.at += int64(len(frames))
	j.written.Add(1)
	return nil
}

// Sync returns nil when everything written before is on disk.
func (j *Journal) Sync() error {
	written := j.written.Load()
	if written == j.synced.Load() {
		return nil // a checkpoint did it
	}
	for {
		err := syscall.Fdatasync(int(j.f.Fd()))
		if err == nil {
			j.synced.Store(written)
		}
		if err != syscall.EINTR {
			return err
		}
	}
}

// Break refuses further frames until Restart. It is called when it is unknown which frames count.
func (j *Journal) Break() { j.broken = true }

// Close closes the file.
func (j *Journal) Close() error { return j.f.Close() }

// Seal completes a frame that consists of an empty header and changes.
func (j *Journal) Seal(frame []byte) {
	binary.LittleEndian.PutUint64(frame, j.epoch)
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(frame)-HeaderSize))
	binary.LittleEndian.PutUint32(frame[12:], frameCheck(frame))
}

func frameCheck(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:12], castagnoli), castagnoli, frame[HeaderSize:])
}

// AppendChange adds a change to a frame. A nil value deletes the key.
func AppendChange(frame []byte, key string, value []byte) []byte {
	put := byte(0)
	if value != nil {
		put = 1
	}
	frame = append(binary.AppendUvarint(append(frame, put), uint64(len(key))), key...)
	if value != nil {
		frame = append(binary.AppendUvarint(frame, uint64(len(value))), value...)
	}
	return frame
}

// Replay calls put with the changes of one epoch from the journal at path; a nil value deletes the key. It stops at the
// first incomplete frame: no caller got an answer for that update or any later one.
func Replay(path string, epoch uint64, put func(key string, value []byte)) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize))
	if err != nil {
		return fmt.Errorf("reading the ledger's journal: %w", err)
	}
	for len(data) >= HeaderSize && binary.LittleEndian.Uint64(data) == epoch {
		size := int64(binary.LittleEndian.Uint32(data[8:])) + HeaderSize
		if size > int64(len(data)) {
			break
		}
		frame := data[:size]
		if binary.LittleEndian.Uint32(frame[12:]) != frameCheck(frame) {
			break
		}
		changes, ok := parse(frame[HeaderSize:])
		if !ok {
			break
		}
		for _, c := range changes {
			put(string(c.key), c.value)
		}
		data = data[size:]
	}
	return nil
}

type change struct{ key, value []byte }

// parse returns the changes of one frame, all or none.
func parse(text []byte) (changes []change, ok bool) {
	for len(text) > 0 {
		put := text[0] == 1
		var c change
		if c.key, text, ok = cutBytes(text[1:]); !ok {
			return nil, false
		}
		if put {
			if c.value, text, ok = cutBytes(text); !ok {
				return nil, false
			}
		}
		changes = append(changes, c)
	}
	return changes, true
}

// cutBytes reads a size and that many bytes from b. What it reads is never nil.
func cutBytes(b []byte) (taken, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return b[n:end:end], b[end:], true
}
