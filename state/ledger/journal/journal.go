// Package journal has the file in which updates of the ledger wait for the database: append, sync, and replay after a
// crash.
//
// In scope: the format of the file, its size, which part of it is on disk, and what is damage. Out of scope: what the
// updates mean, when they move to the database, who waits for a sync, and what to do about damage. Package ledger, the
// only caller, decides that. Its lock commitMu guards a Journal; only Dirty and Sync may run without it.
package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
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
//
// The removal of a key that begins with a zero byte is a mark: the rest of the key is the end, in decimal, of what was
// on disk when the frame was made. It is how Replay knows a frame that was on disk and is damaged from one that a
// power cut kept from the disk.
type Journal struct {
	f      *os.File
	epoch  uint64
	before uint64 // the epoch of the file's first frame when this epoch began
	at     int64  // where the next frame goes
	broken bool   // a sync failed: it is unknown which frames of this epoch are on disk

	written, synced atomic.Int64 // bytes ever written, and how many of them are on disk
	began           int64        // value of written at which the epoch began
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

// Prepare gives the file its full size, and allocates its space on disk, so that no sync has to. On a small disk the
// space is allocated as the file is written instead. The content stays.
func (j *Journal) Prepare() {
	var st unix.Stat_t
	if unix.Fstat(int(j.f.Fd()), &st) != nil || st.Size >= MaxSize && st.Blocks*512 >= MaxSize {
		return
	}
	if st.Size < MaxSize && j.f.Truncate(MaxSize) != nil {
		return
	}
	if unix.Fallocate(int(j.f.Fd()), 0, 0, MaxSize) == nil {
		// Blocks that are allocated but never written would make the first sync update the file system's metadata.
		text := make([]byte, MaxSize)
		if n, err := j.f.ReadAt(text, 0); err == nil {
			_, _ = j.f.WriteAt(text[:n], 0)
		}
	}
	_ = j.f.Sync()
}

// Begin returns the description of a new epoch as the database records it before Restart.
func (j *Journal) Begin(epoch uint64) Start {
	s := Start{Epoch: epoch, Boot: bootID()}
	if j.at > 0 && j.synced.Load() <= j.began && j.Sync() != nil {
		return s // a power cut could bring back the first frame of an epoch before this one
	}
	if s.Before = j.firstEpoch(); s.Before == 0 { // a new file, which must differ from one that lost its content
		s.Before = rand.Uint64() | 1
		if j.writeFirst(s.Before) != nil {
			return Start{Epoch: epoch, Boot: s.Boot}
		}
	}
	if fi, err := j.f.Stat(); err == nil {
		s.Size = min(fi.Size(), MaxSize)
	}
	return s
}

// firstEpoch returns the epoch of the file's first frame; 0 if it has none.
func (j *Journal) firstEpoch() uint64 {
	var text [8]byte
	_, _ = j.f.ReadAt(text[:], 0)
	return binary.LittleEndian.Uint64(text[:])
}

// writeFirst writes an epoch where the first frame has its own, and syncs it.
func (j *Journal) writeFirst(epoch uint64) error {
	_, err := j.f.WriteAt(binary.LittleEndian.AppendUint64(nil, epoch), 0)
	return errors.Join(err, j.f.Sync())
}

// Restart begins a new epoch. Nothing of the last epoch is needed any more.
func (j *Journal) Restart(epoch uint64) {
	j.epoch, j.before, j.at, j.broken = epoch, j.firstEpoch(), 0, false
	j.began = j.written.Load()
	j.synced.Store(j.began)
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
	if n, err := j.f.WriteAt(frames, j.at); err != nil {
		j.erase(n)
		return err
	}
	j.at += int64(len(frames))
	j.written.Add(int64(len(frames)))
	return nil
}

// erase overwrites n bytes behind the last frame: some of the frames in them may be complete.
func (j *Journal) erase(n int) {
	text := make([]byte, max(n, HeaderSize))
	if j.at == 0 {
		binary.LittleEndian.PutUint64(text, j.before) // the file stays one that Replay knows
	}
	_, _ = j.f.WriteAt(text, j.at)
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

// Seal completes a frame that consists of an empty header and changes, and returns it.
func (j *Journal) Seal(frame []byte) []byte {
	if onDisk := j.synced.Load() - j.began; onDisk > 0 {
		frame = appendMark(frame, onDisk)
	}
	binary.LittleEndian.PutUint64(frame, j.epoch)
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(frame)-HeaderSize))
	binary.LittleEndian.PutUint32(frame[12:], frameCheck(frame))
	return frame
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
