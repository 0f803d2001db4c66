package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/backup"
)

// openBackups opens what makes backups of this daemon.
func (d *Daemon) openBackups() (err error) {
	d.backups, err = backup.Open(backup.Source{Dir: d.cfg.Dir, Version: d.cfg.Version, Ledger: d.books,
		Pool: d.machine.disk, Images: d.machine.saved})
	return err
}

// loadRestored imports the images of a backup that the data directory was restored from.
func (d *Daemon) loadRestored(ctx context.Context) error {
	path := filepath.Join(d.cfg.Dir, backup.ImagesFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	d.cfg.Progress("importing the images of the backup")
	err = d.machine.saved.Load(ctx, f, func(name string) { d.cfg.Progress("importing the image " + name) })
	if err != nil {
		return fmt.Errorf("importing the images of the backup from %s, which you may move away to start without "+
			"them: %w", path, err)
	}
	return os.Remove(path)
}
