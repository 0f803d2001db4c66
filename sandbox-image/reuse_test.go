package sandboximage

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestReuse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tiny.tar")
	def, err := parse(tinyImage(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	root, content := t.TempDir(), make([]byte, 64<<10)
	_, _ = rand.Read(content) // does not compress
	if err := os.WriteFile(filepath.Join(root, "a"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	layer, err := packLayer(t.Context(), &Env{}, root, filepath.Join(dir, "layer"), time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	layer.packages = 1
	info := imageInfo{name: "tiny", key: def.key, env: def.env, packages: "packages"}
	if err := writeArchive(path, info, []blob{layer}); err != nil {
		t.Fatal(err)
	}
	r, ok := reuse(path, def.key)
	if !ok || r.Packages != 1 || len(r.Layers) != 1 ||
		r.Layers[0] != (Layer{"tiny", layer.digest.String(), layer.size, layer.unpacked}) {
		t.Errorf("reuse = %+v, %t", r, ok)
	}
	if a, _ := findArchive(path, def.key); a.packages() != "packages" {
		t.Error("the archive names other packages than it was made of")
	}
	if _, ok := reuse(path, "another key"); ok {
		t.Error("the archive passes for another definition's")
	}
	if err := os.Truncate(path, r.Size-layer.size/2-4096); err != nil {
		t.Fatal(err)
	}
	if _, ok := reuse(path, def.key); ok {
		t.Error("a truncated archive passes for a whole one")
	}
}
