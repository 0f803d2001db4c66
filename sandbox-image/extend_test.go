package sandboximage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"berth/proto"
	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/layer"
	"berth/sandbox-image/ociarchive"
	"berth/sandbox-image/recipe"
)

// TestExtend builds an image of two layers over a small one. The second layer fails at first; the next build uses the
// finished first layer. The test shares the downloads of the real cache.
func TestExtend(t *testing.T) {
	needRoot(t)
	fsys := tinyImage()
	fsys["tiny/packages.txt"].Data = []byte("bash coreutils apt\n")
	setup := "test \"$(grep -c : /proc/net/dev)\" = 1 # no network but its own\nrm /etc/y\necho made >/etc/z\n"
	for name, text := range map[string]string{
		"larger/from.txt": "tiny\n", "larger/env.txt": "MORE=1\n",
		"larger/1-tools/packages.txt": "netbase\n", "larger/1-tools/files/etc/y": "y\n",
		"larger/1-tools/prepare.sh": "test ! -e /etc/services; touch /etc/prepared\n",
		"larger/2-rest/setup.sh":    setup + "exit 3\n",
	} {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	b, unlock := extension(t, fsys)
	defer unlock()
	if _, err := b.cached(t.Context()); proto.CodeOf(err) != proto.Internal ||
		!strings.Contains(err.Error(), "layer rest failed") {
		t.Fatalf("a layer whose setup fails: %v", err)
	}
	if _, err := os.Stat(b.archive()); err == nil {
		t.Fatal("there is an archive of a failed build")
	}

	fsys["larger/2-rest/setup.sh"].Data = []byte(setup)
	again, steps := extensionOf(t, fsys), []string{}
	again.Progress = func(s buildenv.Step) { steps = append(steps, s.Layer+" "+s.Name) }
	r, err := again.cached(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(steps, "tools "+buildenv.StepUnpacking) ||
		!slices.Contains(steps, "tools "+buildenv.StepUnpackingLayer) ||
		!slices.Contains(steps, "rest "+buildenv.StepPacking) {
		t.Errorf("the second build did %q", slices.Compact(steps))
	}
	checkExtension(t, r)
	if left, _ := filepath.Glob(filepath.Join(b.Cache, "layers", "*")); len(left) > 0 {
		t.Errorf("layers left beside the archive: %q", left)
	}

	again.refresh = true // nothing is newer: the layers of the archive are taken
	steps = nil
	if same, err := again.cached(t.Context()); err != nil || same.Digest != r.Digest ||
		slices.Contains(steps, "rest "+buildenv.StepPacking) {
		t.Errorf("refreshed: %+v, %v, by %q", same, err, slices.Compact(steps))
	}
}

// tinyImage is a definition of as little as a Debian system can be.
func tinyImage() fstest.MapFS {
	return fstest.MapFS{
		"tiny/packages.txt": {Data: []byte("bash dash coreutils\n")},
		"tiny/env.txt":      {Data: []byte("LANG=C.UTF-8\n")},
		"tiny/dpkg.cfg":     {Data: []byte("path-exclude=/usr/share/doc/*\n")},
		"tiny/prepare.sh":   {Data: []byte(":\n")},
		"tiny/setup.sh":     {Data: []byte(":\n")},
		"tiny/files/etc/x":  {Data: []byte("x\n")},

		"tiny/files/etc/apt/sources.list.d/debian.sources": {Data: []byte("Types: deb\n")},
	}
}

func extensionOf(t *testing.T, fsys fstest.MapFS) *build {
	t.Helper()
	def, err := recipe.Parse(fsys, "larger")
	if err != nil {
		t.Fatal(err)
	}
	return &build{def: def, Env: &buildenv.Env{Cache: DefaultCacheDir}}
}

// extension is a build in the real cache, locked, that leaves nothing there.
func extension(t *testing.T, fsys fstest.MapFS) (b *build, unlock func()) {
	t.Helper()
	b = extensionOf(t, fsys)
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		t.Fatal(err)
	}
	release, err := b.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b, func() {
		os.Remove(b.archive())
		os.Remove(filepath.Join(b.Cache, "tiny.tar"))
		release()
	}
}

// checkExtension looks into the three layers.
func checkExtension(t *testing.T, r Result) {
	t.Helper()
	var names []string
	for _, l := range r.Layers {
		names = append(names, l.Name)
	}
	if !slices.Equal(names, []string{"tiny", "tools", "rest"}) || r.Reused {
		t.Fatalf("layers %q, %+v", names, r)
	}
	a, err := ociarchive.Read(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	layers := a.Layers()
	if !slices.Contains(a.Config.Config.Env, "MORE=1") || len(a.Config.RootFS.DiffIDs) != 3 ||
		a.Config.RootFS.DiffIDs[2] != layers[2].DiffID {
		t.Errorf("configuration %+v", a.Config)
	}
	root := t.TempDir()
	for _, l := range layers {
		if err := layer.Unpack(t.Context(), &buildenv.Env{}, l, root); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"etc/services": true, "etc/prepared": true, "etc/z": true, "etc/y": false,
		"bin/bash": true, "run/berth": false, "var/log/dpkg.log": false} {
		if _, err := os.Stat(filepath.Join(root, name)); (err == nil) != want {
			t.Errorf("%s: %v; want it there: %t", name, err, want)
		}
	}
}
