package sandboximage

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLayerCache(t *testing.T) {
	dir := t.TempDir()
	s, err := openLayerCache(dir, "none")
	if err != nil {
		t.Fatal(err)
	}
	root, epoch := t.TempDir(), time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("a file"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := packLayer(t.Context(), &Env{}, root, filepath.Join(t.TempDir(), "layer"), epoch, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.name, l.key, l.packages = "tools", "k", 3
	if _, err := s.add(l); err != nil {
		t.Fatal(err)
	}
	if s, err = openLayerCache(dir, "none"); err != nil {
		t.Fatal(err)
	}
	got, ok := s.find("k")
	if _, other := s.find("x"); !ok || other || got.digest != l.digest || got.diffID != l.diffID || got.packages != 3 ||
		!got.epoch.Equal(epoch) || got.unpacked != l.unpacked {
		t.Fatalf("found %+v, %t; kept %+v", got, ok, l)
	}
	if err := os.Truncate(got.path, got.size-1); err != nil {
		t.Fatal(err)
	}
	if s, _ = openLayerCache(dir, "none"); len(s.layers) > 0 {
		t.Error("a layer that is not whole is on offer")
	}
	if err := s.clear(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.dir); len(left) > 0 {
		t.Errorf("%d files left", len(left))
	}
}
