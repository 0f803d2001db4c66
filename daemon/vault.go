package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"berth/api/native"
	"berth/session"
	"berth/state/ledger"
	"berth/state/vault"
	"berth/tools/toolstore"
)

// sealedHere are all sealed records of a daemon that runs.
func (d *Daemon) sealedHere() []vault.Sweeper {
	return []vault.Sweeper{d.sessions.Reseal, func(reseal func(string, string) (string, error)) (int, int, error) {
		return toolstore.Reseal(d.books, reseal)
	}}
}

// rotate is the edge's way to a new key.
func (d *Daemon) rotate(context.Context) (native.Rotation, error) {
	done, err := d.secrets.Rotate(d.sealedHere()...)
	return native.Rotation(done), err
}

// forget is the edge's way to be without the old ones.
func (d *Daemon) forget(context.Context) (native.Rotation, error) {
	done, err := d.secrets.Forget(d.sealedHere()...)
	return native.Rotation(done), err
}

// RotateIn makes a new key in a data directory that no daemon uses, and seals everything there anew; with forget it
// takes the old keys away instead.
func RotateIn(dir string, forget bool) (done vault.Rotation, err error) {
	if _, err := os.Stat(filepath.Join(dir, "ledger.db")); err != nil {
		return done, fmt.Errorf("%s is no data directory of a daemon: %w", dir, err)
	}
	books, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, books.Close()) }()
	secrets, err := vault.Open(filepath.Join(dir, secretKeyFile), books)
	if err != nil {
		return done, err
	}
	all := []vault.Sweeper{
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return session.Reseal(books, reseal)
		},
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return toolstore.Reseal(books, reseal)
		},
	}
	if forget {
		return secrets.Forget(all...)
	}
	return secrets.Rotate(all...)
}
