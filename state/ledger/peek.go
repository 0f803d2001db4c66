package ledger

import (
	"berth/state/ledger/journal"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrInUse means that a daemon has the ledger open.
var ErrInUse = errors.New("a daemon uses this ledger")

// Peek runs fn on the ledger at path and changes nothing. It fails with ErrInUse while a daemon runs, and with an
// os.ErrNotExist if there is no ledger. If the journal is damaged, it fails as Open does.
func Peek(path string, fn func(*Tx) error) error {
	err := recoverPanics(func(open openFile) error {
		bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, ReadOnly: true, OpenFile: open})
		if err != nil {
			return err
		}
		defer bolt.Close()
		return bolt.View(func(tx *bbolt.Tx) error {
			over, err := journaled(tx, journalPath(path))
			var damage *journal.Damage
			if errors.As(err, &damage) {
				return fmt.Errorf("%w; %s", err, journalRemedy(damage))
			}
			if err != nil {
				return err
			}
			return fn(&Tx{read: tx, over: over})
		})
	})
	switch {
	case errors.Is(err, errDamaged):
		return fmt.Errorf("the ledger cannot be read: %w", err)
	case errors.Is(err, berrors.ErrTimeout):
		return ErrInUse
	}
	return err
}
