package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Start describes an epoch. The database records it before the epoch's first frame is written.
type Start struct {
	Epoch  uint64 `json:"epoch"`
	Before uint64 `json:"before"` // the epoch of the file's first frame, which stays there until this epoch has one
	Size   int64  `json:"size"`   // of the file in bytes
	Boot   string `json:"boot"`   // of the machine; "": unknown
}

// A Damage is what Replay finds if frames are missing that were acknowledged.
type Damage struct {
	File  string // its name
	At    int64  // where the whole frames end
	Found string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s", d.File, d.At, d.Found)
}

// Replay calls put with the changes of one epoch from the journal at path; a nil value deletes the key. It stops at the
// first frame that is not whole. That is the end, or a write under way when the daemon died: no caller got an answer
// for that update or any later one. Otherwise it is a *Damage, and put has got what is before it.
//
// A Start without Before, Size and Boot is an earlier build's, which recorded the epoch alone.
func Replay(path string, start Start, put func(key string, value []byte)) error {
	f, err := os.Open(path)
	damage := func(at int64, format string, args ...any) error {
		return &Damage{File: filepath.Base(path), At: at, Found: fmt.Sprintf(format, args...)}
	}
	if errors.Is(err, os.ErrNotExist) {
		return damage(0, "the file is missing")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxSize))
	if err != nil {
		return fmt.Errorf("reading the ledger's journal: %w", err)
	}
	at := replayWhole(text, start.Epoch, put)
	switch behind, onDisk := wholeBehind(text[at:], start.Epoch); {
	case behind > 0 && (onDisk > int64(at) || start.Boot == "" || start.Boot == bootID()):
		// a daemon that is killed leaves the beginning of its last write, and a power cut leaves all that was synced
		return damage(int64(at), "%d whole updates are behind one that cannot be read", behind)
	case int64(len(text)) < start.Size:
		return damage(int64(at), "the file has %d bytes instead of %d", len(text), start.Size)
	case start.Size >= 8 && at == 0 && !begins(text, start.Epoch) && !begins(text, start.Before):
		return damage(0, "the file is not the one that belongs to this ledger")
	}
	return nil
}

// replayWhole calls put with the changes of the whole frames at the beginning of text, and returns their size.
func replayWhole(text []byte, epoch uint64, put func(key string, value []byte)) (size int) {
	for {
		frame, changes, ok := cutFrame(text[size:], epoch)
		if !ok {
			return size
		}
		for _, c := range changes {
			if _, mark := c.mark(); !mark {
				put(string(c.key), c.value)
			}
		}
		size += len(frame)
	}
}

// wholeBehind counts the whole frames of an epoch anywhere in text, and returns the largest of their marks.
func wholeBehind(text []byte, epoch uint64) (n int, onDisk int64) {
	sought := binary.LittleEndian.AppendUint64(nil, epoch)
	for {
		at := bytes.Index(text, sought)
		if at < 0 {
			return n, onDisk
		}
		frame, changes, ok := cutFrame(text[at:], epoch)
		if !ok {
			text = text[at+1:]
			continue
		}
		n++
		for _, c := range changes {
			end, _ := c.mark()
			onDisk = max(onDisk, end)
		}
		text = text[at+len(frame):]
	}
}

// begins reports whether the first frame in text has this epoch.
func begins(text []byte, epoch uint64) bool {
	return len(text) >= 8 && binary.LittleEndian.Uint64(text) == epoch
}

// cutFrame returns the frame of an epoch at the beginning of text, if there is one and it is whole.
func cutFrame(text []byte, epoch uint64) (frame []byte, changes []change, ok bool) {
	if len(text) < HeaderSize || !begins(text, epoch) {
		return nil, nil, false
	}
	size := int64(binary.LittleEndian.Uint32(text[8:])) + HeaderSize
	if size > int64(len(text)) {
		return nil, nil, false
	}
	frame = text[:size]
	if binary.LittleEndian.Uint32(frame[12:]) != frameCheck(frame) {
		return nil, nil, false
	}
	changes, ok = parse(frame[HeaderSize:])
	return frame, changes, ok
}

type change struct{ key, value []byte }

// appendMark adds the mark that everything before the byte end is on disk.
func appendMark(frame []byte, end int64) []byte {
	return AppendChange(frame, "\x00"+strconv.FormatInt(end, 10), nil)
}

// mark returns the value of a mark. Earlier builds take a mark for the removal of a key that never exists.
func (c change) mark() (end int64, ok bool) {
	digits, ok := bytes.CutPrefix(c.key, []byte{0})
	if !ok {
		return 0, false
	}
	end, _ = strconv.ParseInt(string(digits), 10, 64)
	return end, true
}

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

// bootID returns the kernel's ID of this boot; "" if it has none.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}
