package sandboximage

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/layer"
	"berth/sandbox-image/ociarchive"
	"berth/sandbox-image/recipe"
)

func TestReuse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tiny.tar")
	def, err := recipe.Parse(tinyImage(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	root, content := t.TempDir(), make([]byte, 64<<10)
	_, _ = rand.Read(content) // does not compress
	if err := os.WriteFile(filepath.Join(root, "a"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	packed, err := layer.Pack(t.Context(), &buildenv.Env{}, root, filepath.Join(dir, "layer"), time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	packed.Packages = 1
	info := ociarchive.Image{Name: "tiny", Key: def.Key, Env: def.Env, Packages: "packages"}
	if err := ociarchive.Write(path, info, []layer.Layer{packed}); err != nil {
		t.Fatal(err)
	}
	r, ok := reuse(path, def.Key)
	if !ok || r.Packages != 1 || len(r.Layers) != 1 ||
		r.Layers[0] != (Layer{"tiny", packed.Digest.String(), packed.Size, packed.Unpacked}) {
		t.Errorf("reuse = %+v, %t", r, ok)
	}
	if a, _ := ociarchive.Find(path, def.Key); a.Packages() != "packages" {
		t.Error("the archive names other packages than it was made of")
	}
	if _, ok := reuse(path, "another key"); ok {
		t.Error("the archive passes for another definition's")
	}
	if err := os.Truncate(path, r.Size-packed.Size/2-4096); err != nil {
		t.Fatal(err)
	}
	if _, ok := reuse(path, def.Key); ok {
		t.Error("a truncated archive passes for a whole one")
	}
}
