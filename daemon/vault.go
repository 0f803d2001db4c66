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

// sealedHere returns the sweepers over all sealed records of a running daemon.
func (d *Daemon) sealedHere() []vault.Sweeper {
	return []vault.Sweeper{d.sessions.Reseal, d.registries.Reseal, d.webhooks.Reseal,
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return toolstore.Reseal(d.books, reseal)
		},
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return signed.Reseal(d.books, reseal)
		}}
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
	all := []vault.Sweeper{
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return session.Reseal(books, reseal)
		},
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return toolstore.Reseal(books, reseal)
		},
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return registries.Reseal(books, reseal)
		},
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return webhook.Reseal(books, reseal)
		},
		func(reseal func(string, string) (string, error)) (int, int, error) {
			return signed.Reseal(books, reseal)
		},
	}
	if forget {
		return secrets.Forget(all...)
	}
	return secrets.Rotate(all...)
}
