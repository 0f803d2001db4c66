// Package endlog reads the ends of commands that older daemons wrote beside the ledger, before that had a journal.
// Package session, the only caller, moves them to the ledger when it opens.
package endlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"berth/state/ledger"
)

// Name is a file of the data directory with ends of commands that clients know and the ledger may lack, one JSON line
// each.
const Name = "ends.log"

// A Line is one line of the log.
type Line[R any] struct {
	Container string `json:"container"`
	Record    R      `json:"record"`
}

// Replay moves the ends that an older daemon left in dir to the ledger, each by apply, and removes the log.
func Replay[R any](dir string, db *ledger.DB, apply func(tx *ledger.Tx, line Line[R]) error) error {
	path := filepath.Join(dir, Name)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = db.Update(func(tx *ledger.Tx) error { return each(data, func(l Line[R]) error { return apply(tx, l) }) })
	}
	if err != nil {
		return fmt.Errorf("recording ends that clients got before a crash: %w", err)
	}
	return os.Remove(path)
}

func each[R any](data []byte, do func(Line[R]) error) error {
	for lines := bufio.NewReader(bytes.NewReader(data)); ; {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a client never got the end in a line that a crash cut off
		}
		var line Line[R]
		if json.Unmarshal(text, &line) != nil {
			continue
		}
		if err := do(line); err != nil {
			return err
		}
	}
}
