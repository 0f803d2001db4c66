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

// A journal is a file beside the database with the updates that the database has not got yet, one frame each. It is
// written from its beginning over and over: writing where blocks are allocated already is all that a sync then has to
// wait for, and finds room on a full disk.
//
// A frame is a header and the changes of one update. The header has the epoch in which the frame was written, which a
// checkpoint ends: what earlier epochs left in the file does not count. The database knows the epoch that goes on
// where it ends, so that frames are only ever added to the state that they were made on.
//
//	epoch  8 bytes
//	size   4 bytes, of the changes
//	check  4 bytes: CRC-32C of all else
//	changes, each: 0 or 1, size of the key, key; and for 1, which is a put: size of the value, value. Sizes are uvarints.
type journal struct {
	f      *os.File
	epoch  uint64
	at     int64 // where the next frame goes
	broken bool  // a sync has failed: nobody knows what of this epoch is on disk

	written, synced atomic.Uint64 // how often frames were added, and how many times of that are on disk
}

// dirty reports whether something was written that is not on disk.
func (j *journal) dirty() bool { return j.written.Load() != j.synced.Load() }

// journalSize is how large the file may become, in bytes, and so how much is read again at the next start, and what
// one checkpoint has to write.
const journalSize = 1 << 20

const headerSize = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFull says that the journal takes nothing before the next checkpoint.
var errFull = errors.New("the journal is full, or not to be relied on")

// journalPath is where the journal of the ledger at path is.
func journalPath(path string) string { return path + ".log" }

func openJournal(path string) (*journal, error) {
	_, missing := os.Stat(path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if missing != nil { // or a power cut could take the name, and the file with it
		if err := SyncPath(filepath.Dir(path)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return &journal{f: f}, nil
}

// prepare takes the room on the disk that the journal may need, so that no sync waits for its allocation. A small
// disk is better left alone; the file then grows as it is written.
func (j *journal) prepare() {
	fi, err := j.f.Stat()
	if err != nil || fi.Size() >= journalSize || unix.Fallocate(int(j.f.Fd()), 0, 0, journalSize) != nil {
		return
	}
	// What is allocated and never written still costs its first sync a change of the file system's own records.
	_, _ = j.f.WriteAt(make([]byte, journalSize-fi.Size()), fi.Size())
	_ = j.f.Sync()
}

// restart begins a new epoch. Nothing of the last one is needed any more.
func (j *journal) restart(epoch uint64) {
	j.epoch, j.at, j.broken = epoch, 0, false
	j.synced.Store(j.written.Load())
}

// add writes whole frames. They are safe from the daemon's death when it returns, and not from a power cut. If it
// fails nothing of them counts.
func (j *journal) add(frames []byte) error {
	if j.broken || j.at+int64(len(frames)) > journalSize {
		return errFull
	}
	if len(frames) == 0 {
		return nil
	}
	if _, err := j.f.WriteAt(frames, j.at); err != nil {
		_, _ = j.f.WriteAt(make([]byte, headerSize), j.at) // the first of them may be whole
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

// seal completes a frame: a header that was left free, and changes.
func (j *journal) seal(frame []byte) {
	binary.LittleEndian.PutUint64(frame, j.epoch)
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(frame)-headerSize))
	binary.LittleEndian.PutUint32(frame[12:], frameCheck(frame))
}

func frameCheck(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:12], castagnoli), castagnoli, frame[headerSize:])
}

// appendChange adds a change to a frame; a nil value deletes the key.
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

// replay is over with the changes of an epoch that are in the journal at path. It ends where the first frame is not
// whole: nobody was told of that one, nor of any behind it.
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

// apply is over with the changes of one frame.
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

// cutBytes takes a size and so many bytes off b. What it takes is never nil.
func cutBytes(b []byte) (taken, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return b[n:end:end], b[end:], true
}
