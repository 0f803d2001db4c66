package inprocess

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"berth/runtime/images"
	"berth/test/needs"
)

func TestMain(m *testing.M) { needs.Main("make snapshots"); os.Exit(m.Run()) }

// TestUncommittedSnapshots checks that a directory of a snapshot that its database has not committed does not stop the
// next snapshot, neither the first of all nor a later one, and that no committed one is lost.
func TestUncommittedSnapshots(t *testing.T) {
	run, err := os.MkdirTemp("/tmp", "run") // containerd demands a short path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(run)
	cfg := Config{Dir: t.TempDir(), Run: run, Log: slog.New(slog.DiscardHandler),
		Running: func() ([]string, error) { return nil, nil }}
	dirs := filepath.Join(cfg.Dir, "ctr", layersDir, snapshotsDir)
	if err := os.Mkdir(filepath.Join(cfg.Dir, "ctr"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx := namespaces.WithNamespace(t.Context(), images.Namespace)
	for next := 1; next <= 3; next++ {
		c, err := Start(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		sn := c.Client.SnapshotService(images.Snapshotter)
		if _, err := sn.Prepare(ctx, strconv.Itoa(next), ""); err != nil {
			t.Errorf("snapshot %d: %v", next, err)
		}
		for id := 1; id <= next; id++ {
			if _, err := os.Stat(filepath.Join(dirs, strconv.Itoa(id), "fs")); err != nil {
				t.Error(err)
			}
		}
		c.Stop()
		if err := os.MkdirAll(filepath.Join(dirs, strconv.Itoa(next+1), "fs", "file"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}
