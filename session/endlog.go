package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"berth/ledger"
	"berth/proto"
)

// endLogName is below Config.Dir: the ends of commands that the ledger may not have yet, one JSON line each.
const endLogName = "ends.log"

// endLogSpare is the size from which the log is emptied when the ledger has all of it, in bytes. A smaller one is left, since
// emptying costs more than it gives back.
const endLogSpare = 256 << 10

// An endLog keeps the ends of foreground commands between their answer and their place in the ledger. A caller who has been
// told of an end must find it there after the daemon was killed; waiting for the disk with every command would be
// dear. So the end is written here first, without a sync: the kernel has it, whatever becomes of the daemon. A power
// cut may take it, and the command is then told as one that the restart of the host ended.
type endLog struct {
	mu   sync.Mutex // guards what follows
	f    *os.File
	size int64
	open int // ends that the ledger has not taken yet
}

func openEndLog(dir string) (*endLog, error) {
	f, err := os.OpenFile(filepath.Join(dir, endLogName), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of ends: %w", err)
	}
	return &endLog{f: f}, nil
}

// add writes an end down. The function it returns says that the ledger has it.
func (l *endLog) add(container string, rec execRecord) (settled func(), err error) {
	line, err := json.Marshal(endLine{container, rec})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.f.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	l.size += int64(len(line)) + 1
	l.open++
	return l.settle, nil
}

// settle empties the log once nothing in it is needed.
func (l *endLog) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open--; l.open == 0 && l.size > endLogSpare && l.f.Truncate(0) == nil {
		l.size = 0
	}
}

// An endLine is one line of the log.
type endLine struct {
	Container string     `json:"container"`
	Record    execRecord `json:"record"`
}

// replay gives the ledger the ends that it has not, and empties the log. An end counts for a command that the
// ledger has as running: one that it does not know any more was deleted, and one that ended is as it was told.
func (l *endLog) replay(db *ledger.DB) error {
	data, err := io.ReadAll(l.f)
	if err != nil {
		return fmt.Errorf("reading the log of ends: %w", err)
	}
	if len(data) == 0 {
		return nil
	}
	err = db.Update(func(tx *ledger.Tx) error {
		for lines := bufio.NewReader(bytes.NewReader(data)); ; {
			text, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return nil // a line that a crash cut off was never answered
			}
			var line endLine
			if json.Unmarshal(text, &line) != nil {
				continue
			}
			if err := line.apply(tx); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("recording ends that were told before a crash: %w", err)
	}
	return l.f.Truncate(0)
}

func (line endLine) apply(tx *ledger.Tx) error {
	key := execKey(line.Container, line.Record.Exec.ID)
	var known execRecord
	there, err := tx.Get(bucketExecs, key, &known)
	if err != nil || !there || known.Exec.State != proto.ExecRunning {
		return err
	}
	return tx.Put(bucketExecs, key, line.Record)
}

// Close may be called again.
func (l *endLog) Close() error {
	if err := l.f.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
