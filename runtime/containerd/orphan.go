package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/runtime/images"
)

// Unpacked layers are known through containerd's database alone. If that is gone, as after a restore without it, they
// are of no use to anybody but the sandboxes that still run on them; yet their names would be in the way of the
// layers that the next import unpacks. So they are moved aside, and removed once no sandbox is left.

const (
	databaseFile = "io.containerd.metadata.v1.bolt/meta.db"
	layersDir    = "io.containerd.snapshotter.v1." + images.Snapshotter
	orphanDir    = "orphaned-layers-"
)

// settleLayers brings the layers into the state that the database, or its absence, demands. Called before
// containerd starts.
func settleLayers(cfg Config) error {
	root := filepath.Join(cfg.Dir, "ctr")
	if err := dropOrphans(cfg, root); err != nil {
		return fmt.Errorf("removing layers that were moved aside: %w", err)
	}
	_, err := os.Lstat(filepath.Join(root, databaseFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	aside, err := os.MkdirTemp(root, orphanDir)
	if err != nil {
		return err
	}
	err = os.Rename(filepath.Join(root, layersDir), filepath.Join(aside, "layers")) // mounts on them do not mind
	if errors.Is(err, fs.ErrNotExist) {
		return os.Remove(aside) // the first start of all
	}
	if err == nil {
		cfg.Log.Error("containerd's database is gone: every image has to be imported or pulled again; containers " +
			"keep their files")
	}
	return err
}

// dropOrphans removes what was moved aside, unless some sandbox may still be running on it.
func dropOrphans(cfg Config, root string) error {
	if running, err := cfg.listBundles(); len(running) > 0 || err != nil {
		return err
	}
	orphans, err := filepath.Glob(filepath.Join(root, orphanDir+"*"))
	for _, dir := range orphans {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
