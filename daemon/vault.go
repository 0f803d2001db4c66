package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"berth/api/native"
	"berth/api/ports/signed"
	"berth/events/webhook"
	"berth/session"
	"berth/state/ledger"
	"berth/state/registries"
	"berth/state/vault"
	"berth/tools/toolstore"
)

// in returns a sweeper over the records of a ledger.
func in(books *ledger.DB, sweep func(*ledger.DB, vault.Resealer) (changed, closed int, err error)) vault.Sweeper {
	return func(reseal vault.Resealer) (int, int, error) { return sweep(books, reseal) }
}

// sealedHere returns the sweepers over all sealed records of a running daemon.
func (d *Daemon) sealedHere() []vault.Sweeper {
	return []vault.Sweeper{d.sessions.Reseal, d.registries.Reseal, d.webhooks.Reseal, in(d.books, toolstore.Reseal),
		in(d.books, signed.Reseal)}
}

// rotate creates a new vault key and seals all secrets with it.
func (d *Daemon) rotate(context.Context) (native.Rotation, error) {
	done, err := d.secrets.Rotate(d.sealedHere()...)
	return native.Rotation(done), err
}

// forget removes the old vault keys.
func (d *Daemon) forget(context.Context) (native.Rotation, error) {
	done, err := d.secrets.Forget(d.sealedHere()...)
	return native.Rotation(done), err
}

// RotateIn creates a new vault key in a data directory that no daemon uses, and seals all secrets with it. With
// forget, it removes the old keys instead.
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
	all := []vault.Sweeper{in(books, session.Reseal), in(books, registries.Reseal), in(books, webhook.Reseal),
		in(books, toolstore.Reseal), in(books, signed.Reseal)}
	if forget {
		return secrets.Forget(all...)
	}
	return secrets.Rotate(all...)
}
