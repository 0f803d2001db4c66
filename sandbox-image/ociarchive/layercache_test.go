package ociarchive

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/layer"
)

func TestLayerCache(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenCache(dir, "none")
	if err != nil {
		t.Fatal(err)
	}
	root, epoch := t.TempDir(), time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("a file"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := layer.Pack(t.Context(), &buildenv.Env{}, root, filepath.Join(t.TempDir(), "layer"), epoch, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Name, l.Key, l.Packages = "tools", "k", 3
	if _, err := s.Add(l); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenCache(dir, "none"); err != nil {
		t.Fatal(err)
	}
	got, ok := s.Find("k")
	if _, other := s.Find("x"); !ok || other || got.Digest != l.Digest || got.DiffID != l.DiffID || got.Packages != 3 ||
		!got.Epoch.Equal(epoch) || got.Unpacked != l.Unpacked {
		t.Fatalf("found %+v, %t; kept %+v", got, ok, l)
	}
	if err := os.Truncate(got.Path, got.Size-1); err != nil {
		t.Fatal(err)
	}
	if s, _ = OpenCache(dir, "none"); len(s.layers) > 0 {
		t.Error("a layer that is not whole is on offer")
	}
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.dir); len(left) > 0 {
		t.Errorf("%d files left", len(left))
	}
}
