package inprocess

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
)

// The overlayfs snapshotter numbers its snapshots. It renames the directory of a new snapshot to its number before its
// database commits that number. A daemon killed between the two leaves a directory that the database does not know. The
// next snapshot then gets the same number, its rename fails ("failed to rename: file exists"), and so does each later
// one. So Start removes directories above all numbers that the database knows. Below them, directories of removed
// snapshots do not get in the way; the snapshotter removes those itself.

const (
	snapshotDatabase = "metadata.db"
	snapshotsDir     = "snapshots"
)

// dropUncommitted removes the directories of snapshots whose numbers the database has not committed. root is the
// snapshotter's directory. Call it before containerd starts.
func dropUncommitted(ctx context.Context, root string) error {
	database := filepath.Join(root, snapshotDatabase)
	if _, err := os.Stat(database); errors.Is(err, fs.ErrNotExist) {
		return nil // first start, or a lost database: then sandboxes may still run on the layers
	}
	last, err := lastSnapshot(ctx, database)
	if err != nil {
		return fmt.Errorf("reading the numbers of snapshots: %w", err)
	}
	entries, err := os.ReadDir(filepath.Join(root, snapshotsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if id, perr := strconv.ParseUint(e.Name(), 10, 64); perr == nil && id > last {
			err = errors.Join(err, os.RemoveAll(filepath.Join(root, snapshotsDir, e.Name())))
		}
	}
	return err
}

// lastSnapshot returns the highest number in the snapshotter's database, or 0.
func lastSnapshot(ctx context.Context, database string) (last uint64, err error) {
	store, err := storage.NewMetaStore(database)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	err = store.WithTransaction(ctx, false, func(ctx context.Context) error {
		ids, err := storage.IDMap(ctx)
		for id := range ids {
			n, perr := strconv.ParseUint(id, 10, 64)
			last, err = max(last, n), errors.Join(err, perr)
		}
		return err
	})
	if errdefs.IsNotFound(err) { // no snapshot was ever committed
		err = nil
	}
	return last, err
}
