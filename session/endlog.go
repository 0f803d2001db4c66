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

	"berth/proto"
	"berth/state/ledger"
)

// endLogName is below Config.Dir: the ends of commands that were told and that the ledger may not have, one JSON line
// each. Older daemons wrote it, before the ledger had a journal.
const endLogName = "ends.log"

// replayEnds gives the ledger what an older daemon left in the log, and removes it.
func replayEnds(dir string, db *ledger.DB) error {
	path := filepath.Join(dir, endLogName)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = db.Update(func(tx *ledger.Tx) error { return applyEnds(tx, data) })
	}
	if err != nil {
		return fmt.Errorf("recording ends that were told before a crash: %w", err)
	}
	return os.Remove(path)
}

func applyEnds(tx *ledger.Tx, data []byte) error {
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
}

// An endLine is one line of the log.
type endLine struct {
	Container string     `json:"container"`
	Record    execRecord `json:"record"`
}

// apply takes an end over for a command that the ledger has as running: one that it does not know any more was
// deleted, and one that ended is as it was told.
func (line endLine) apply(tx *ledger.Tx) error {
	key := execKey(line.Container, line.Record.Exec.ID)
	var known execRecord
	there, err := tx.Get(bucketExecs, key, &known)
	if err != nil || !there || known.Exec.State != proto.ExecRunning {
		return err
	}
	return tx.Put(bucketExecs, key, line.Record)
}
