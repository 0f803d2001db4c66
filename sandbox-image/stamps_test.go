package sandboximage

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUnpackPacked lays a layer out again: packed once more, it gives the same bytes, so nothing is lost on the way.
func TestUnpackPacked(t *testing.T) {
	layer := packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c"))
	root := t.TempDir()
	if err := (&build{}).unpack(t.Context(), layer, root); err != nil {
		t.Fatal(err)
	}
	if again := packTree(t, root); again.digest != layer.digest {
		t.Errorf("unpacked and packed: %s, was %s", again.digest, layer.digest)
	}
}

func TestUnpackRefuses(t *testing.T) {
	layer := packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c"))
	data, err := os.ReadFile(layer.path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(layer.path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (&build{}).unpack(t.Context(), layer, t.TempDir()); err == nil {
		t.Error("a layer with a wrong bit is unpacked")
	}
	u := &unpacking{ctx: t.Context(), root: t.TempDir()}
	for _, name := range []string{"../x", "/x", "a/../../x"} {
		if err := u.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name}, strings.NewReader("")); err == nil {
			t.Errorf("entry %q is unpacked", name)
		}
	}
}

// TestLayerIsTheDifference changes a tree in every way that there is, packs what changed, and lays it over the tree
// as it was.
func TestLayerIsTheDifference(t *testing.T) {
	root := makeTree(t, "bin/a", "bin/b", "bin/c", "home/kept", "home/gone")
	p := func(name string) string { return filepath.Join(root, name) }
	b := &build{}
	below := packTree(t, root)
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	check(os.MkdirAll(p("home/deep/er"), 0o755), os.WriteFile(p("home/deep/er/x"), nil, 0o644),
		os.Mkdir(p("home/swap"), 0o755), os.WriteFile(p("home/swap/x"), nil, 0o644))
	middle, err := b.pack(t.Context(), root, filepath.Join(t.TempDir(), "layer"), testEpoch, nil)
	check(err)
	before, err := stampTree(root)
	check(err)

	check(os.Remove(p("home/gone")), os.RemoveAll(p("home/deep")), os.RemoveAll(p("home/swap")),
		os.WriteFile(p("home/swap"), []byte("now a file"), 0o644))
	check(os.WriteFile(p("home/new"), []byte("new"), 0o644), os.Chmod(p("bin/c"), 0o700),
		os.WriteFile(p("bin/b"), []byte("B"), 0o755))
	top, err := b.pack(t.Context(), root, filepath.Join(t.TempDir(), "layer"), testEpoch, before)
	check(err)

	var names []string
	for name := range readLayer(t, top) {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"bin/b", "bin/c", "home/", "home/.wh.deep", "home/.wh.gone", "home/new", "home/swap"}
	if !slices.Equal(names, want) {
		t.Errorf("the layer has %q, want %q", names, want)
	}
	whole, err := b.pack(t.Context(), root, filepath.Join(t.TempDir(), "layer"), testEpoch, nil)
	check(err)
	laid := t.TempDir()
	check(b.unpack(t.Context(), below, laid), b.unpack(t.Context(), middle, laid), b.unpack(t.Context(), top, laid))
	if again := packTree(t, laid); again.digest != whole.digest {
		t.Errorf("the layers over each other give %s, want %s", again.digest, whole.digest)
	}
}

func TestShelf(t *testing.T) {
	b := &build{cache: t.TempDir()}
	s, err := b.shelf()
	if err != nil {
		t.Fatal(err)
	}
	l := packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c"))
	l.name, l.key, l.packages = "tools", "k", 3
	if _, err := s.keep(l); err != nil {
		t.Fatal(err)
	}
	if s, err = b.shelf(); err != nil {
		t.Fatal(err)
	}
	got, ok := s.find("k")
	if _, other := s.find("x"); !ok || other || got.digest != l.digest || got.diffID != l.diffID || got.packages != 3 ||
		!got.epoch.Equal(testEpoch) || got.unpacked != l.unpacked {
		t.Fatalf("found %+v, %t; kept %+v", got, ok, l)
	}
	if err := os.Truncate(got.path, got.size-1); err != nil {
		t.Fatal(err)
	}
	if s, _ = b.shelf(); len(s.layers) > 0 {
		t.Error("a layer that is not whole is on offer")
	}
	if err := s.clear(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.dir); len(left) > 0 {
		t.Errorf("%d files left", len(left))
	}
}
