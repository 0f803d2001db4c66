package sandboximage

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReuse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tiny.tar")
	def, err := parse(tiny(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	layer := packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c"))
	layer.packages = 1
	set := packageSet{{name: "bash", version: "1", arch: "all", sha256: sum}}
	info := imageInfo{name: "tiny", key: def.key, env: def.env, packages: set.fingerprint()}
	if err := writeArchive(path, info, []blob{layer}); err != nil {
		t.Fatal(err)
	}
	r, ok := reuse(path, def.key)
	if !ok || r.Packages != 1 || len(r.Layers) != 1 ||
		r.Layers[0] != (Layer{"tiny", layer.digest.String(), layer.size, layer.unpacked}) {
		t.Errorf("reuse = %+v, %t", r, ok)
	}
	if a, _ := findArchive(path, def.key); a.packages() != set.fingerprint() {
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
