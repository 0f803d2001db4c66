package inprocess

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/runtime/images"
)

// Only containerd's database knows the unpacked layers. If the database is gone, as after a restore without it, only
// the sandboxes that still run on the layers can use them. But their names would block the layers that the next
// import unpacks. So the layers are moved aside, and removed once no sandbox is left.

const (
	databaseFile = "io.containerd.metadata.v1.bolt/meta.db"
	layersDir    = "io.containerd.snapshotter.v1." + images.Snapshotter
	orphanDir    = "orphaned-layers-"
)

// settleLayers removes layers that were moved aside earlier, and moves the layers aside if the database is gone. Call
// it before containerd starts.
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
	// existing mounts of them keep working
	err = os.Rename(filepath.Join(root, layersDir), filepath.Join(aside, "layers"))
	if errors.Is(err, fs.ErrNotExist) {
		return os.Remove(aside) // first start: there are no layers
	}
	if err == nil {
		cfg.Log.Error("containerd's database is gone: every image has to be imported or pulled again; containers " +
			"keep their files")
	}
	return err
}

// dropOrphans removes the layers that were moved aside, unless a sandbox may still run on them.
func dropOrphans(cfg Config, root string) error {
	if running, err := cfg.Running(); len(running) > 0 || err != nil {
		return err
	}
	orphans, err := filepath.Glob(filepath.Join(root, orphanDir+"*"))
	for _, dir := range orphans {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
