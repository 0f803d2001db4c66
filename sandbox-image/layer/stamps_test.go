package layer

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/sandbox-image/buildenv"
)

// TestUnpackPacked checks that an unpacked layer, packed again, gives the same bytes.
func TestUnpackPacked(t *testing.T) {
	layer := packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c"))
	root := t.TempDir()
	if err := Unpack(t.Context(), &buildenv.Env{}, layer, root); err != nil {
		t.Fatal(err)
	}
	if again := packTree(t, root); again.Digest != layer.Digest {
		t.Errorf("unpacked and packed: %s, was %s", again.Digest, layer.Digest)
	}
}

func TestUnpackRefuses(t *testing.T) {
	layer := packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c"))
	data, err := os.ReadFile(layer.Path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(layer.Path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(t.Context(), &buildenv.Env{}, layer, t.TempDir()); err == nil {
		t.Error("a layer with a wrong bit is unpacked")
	}
	u := &unpacking{ctx: t.Context(), root: t.TempDir()}
	for _, name := range []string{"../x", "/x", "a/../../x"} {
		if err := u.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name}, strings.NewReader("")); err == nil {
			t.Errorf("entry %q is unpacked", name)
		}
	}
}

// TestLayerIsTheDifference changes a tree in every possible way, packs the changes, and unpacks them over the old tree.
func TestLayerIsTheDifference(t *testing.T) {
	root := makeTree(t, "bin/a", "bin/b", "bin/c", "home/kept", "home/gone")
	p := func(name string) string { return filepath.Join(root, name) }
	below := packTree(t, root)
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	check(os.MkdirAll(p("home/deep/er"), 0o755), os.WriteFile(p("home/deep/er/x"), nil, 0o644),
		os.Mkdir(p("home/swap"), 0o755), os.WriteFile(p("home/swap/x"), nil, 0o644))
	middle, err := Pack(t.Context(), &buildenv.Env{}, root, filepath.Join(t.TempDir(), "layer"), testEpoch, nil)
	check(err)
	before, err := StampTree(root)
	check(err)

	check(os.Remove(p("home/gone")), os.RemoveAll(p("home/deep")), os.RemoveAll(p("home/swap")),
		os.WriteFile(p("home/swap"), []byte("now a file"), 0o644))
	check(os.WriteFile(p("home/new"), []byte("new"), 0o644), os.Chmod(p("bin/c"), 0o700),
		os.WriteFile(p("bin/b"), []byte("B"), 0o755))
	top, err := Pack(t.Context(), &buildenv.Env{}, root, filepath.Join(t.TempDir(), "layer"), testEpoch, before)
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
	whole, err := Pack(t.Context(), &buildenv.Env{}, root, filepath.Join(t.TempDir(), "layer"), testEpoch, nil)
	check(err)
	laid := t.TempDir()
	for _, l := range []Layer{below, middle, top} {
		check(Unpack(t.Context(), &buildenv.Env{}, l, laid))
	}
	if again := packTree(t, laid); again.Digest != whole.Digest {
		t.Errorf("the layers over each other give %s, want %s", again.Digest, whole.Digest)
	}
}
