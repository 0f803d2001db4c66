package ledger

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

// A journal is a file beside the database. It holds the updates that the database does not have yet, one frame each.
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
type journal struct {
	f      *os.File
	epoch  uint64
	at     int64 // where the next frame goes
	broken bool  // a sync failed: it is unknown which frames of this epoch are on disk

	written, synced atomic.Uint64 // number of writes, and how many of them are on disk
}

// dirty reports whether written frames are not yet on disk.
func (j *journal) dirty() bool { return j.written.Load() != j.synced.Load() }

// journalSize is the largest size of the file in bytes. It bounds what the next start reads and what one checkpoint
// writes.
const journalSize = 1 << 20

const headerSize = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFull means that the journal takes no frames before the next checkpoint.
var errFull = errors.New("the journal is full or broken")

// journalPath is the path of the journal for the ledger at path.
func journalPath(path string) string { return path + ".log" }

func openJournal(path string) (*journal, error) {
	_, missing := os.Stat(path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if missing != nil { // or a power cut could remove the name, and the file with it
		if err := SyncPath(filepath.Dir(path)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return &journal{f: f}, nil
}

// prepare allocates the journal's space on disk, so that no sync has to. On a small disk the file grows as it is
// written instead.
func (j *journal) prepare() {
	fi, err := j.f.Stat()
	if err != nil || fi.Size() >= journalSize || unix.Fallocate(int(j.f.Fd()), 0, 0, journalSize) != nil {
		return
	}
	// Blocks that are allocated but never written would make the first sync update the file system's metadata.
	_, _ = j.f.WriteAt(make([]byte, journalSize-fi.Size()), fi.Size())
	_ = j.f.Sync()
}

// restart begins a new epoch. Nothing of the last epoch is needed any more.
func (j *journal) restart(epoch uint64) {
	j.epoch, j.at, j.broken = epoch, 0, false
	j.synced.Store(j.written.Load())
}

// add writes whole frames. When it returns they survive the death of the daemon, but not a power cut. If it fails,
// none of them counts.
func (j *journal) add(frames []byte) error {
	if j.broken || j.at+int64(len(frames)) > journalSize {
		return errFull
	}
	if len(frames) == 0 {
		return nil
	}
	if _, err := j.f.WriteAt(frames, j.at); err != nil {
		_, _ = j.f.WriteAt(make([]byte, headerSize), j.at) // the first of them may be complete
		return err
	}
	j.at += int64(len(frames))
	j.written.Add(1)
	return nil
}

func (j *journal) sync() error {
	for {
		if err := syscall.Fdatasync(int(j.f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}

// seal completes a frame that consists of an empty header and changes.
func (j *journal) seal(frame []byte) {
	binary.LittleEndian.PutUint64(frame, j.epoch)
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(frame)-headerSize))
	binary.LittleEndian.PutUint32(frame[12:], frameCheck(frame))
}

func frameCheck(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:12], castagnoli), castagnoli, frame[headerSize:])
}

// appendChange adds a change to a frame. A nil value deletes the key.
func appendChange(frame []byte, key string, value []byte) []byte {
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

// replay returns over plus the changes of one epoch from the journal at path. It stops at the first incomplete frame:
// no caller got an answer for that update or any later one.
func replay(path string, epoch uint64, over *node) (*node, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return over, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, journalSize))
	if err != nil {
		return nil, fmt.Errorf("reading the ledger's journal: %w", err)
	}
	for len(data) >= headerSize && binary.LittleEndian.Uint64(data) == epoch {
		size := int64(binary.LittleEndian.Uint32(data[8:])) + headerSize
		if size > int64(len(data)) {
			break
		}
		frame := data[:size]
		if binary.LittleEndian.Uint32(frame[12:]) != frameCheck(frame) {
			break
		}
		next, ok := apply(frame[headerSize:], over)
		if !ok {
			break
		}
		over, data = next, data[size:]
	}
	return over, nil
}

// apply returns over plus the changes of one frame.
func apply(changes []byte, over *node) (*node, bool) {
	for len(changes) > 0 {
		put := changes[0] == 1
		key, rest, ok := cutBytes(changes[1:])
		if !ok {
			return nil, false
		}
		var value []byte
		if put {
			if value, rest, ok = cutBytes(rest); !ok {
				return nil, false
			}
		}
		over, changes = over.put(string(key), value), rest
	}
	return over, true
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
