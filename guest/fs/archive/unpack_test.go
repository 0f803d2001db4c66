package archive

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// FuzzUntar checks that no archive makes, changes or links to anything outside the directory, even if the directory has
// a link that leads out. Its seeds are in testdata/fuzz.
func FuzzUntar(f *testing.F) {
	f.Fuzz(func(t *testing.T, archive []byte) {
		base := t.TempDir()
		in, outside := filepath.Join(base, "in"), filepath.Join(base, "outside")
		must(t, os.Mkdir(in, 0o755))
		must(t, os.Mkdir(outside, 0o700))
		must(t, os.WriteFile(filepath.Join(outside, "kept"), []byte("kept"), 0o640))
		must(t, os.Symlink("../outside", filepath.Join(in, "planted")))
		root, err := openTree(in)
		must(t, err)
		defer root.close()
		u := &Unpacker{root: root, limits: wire.UntarLimits{Bytes: 1 << 20, Files: 100}}
		if err := u.unpack(bytes.NewReader(archive)); err != nil && proto.CodeOf(u.explain(err)) == proto.Internal {
			t.Errorf("an internal error: %v", err)
		}
		kept, err := os.ReadFile(filepath.Join(outside, "kept"))
		entries, _ := os.ReadDir(outside)
		all, _ := os.ReadDir(base)
		st, sterr := os.Stat(outside)
		if err != nil || sterr != nil || string(kept) != "kept" || len(entries) != 1 || len(all) != 2 ||
			st.Mode().Perm() != 0o700 {
			t.Error("something outside was changed")
		}
		staysInside(t, in)
	})
}

// staysInside checks that no link below dir leads out of it, except the one that the test made.
func staysInside(t *testing.T, dir string) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink || path == filepath.Join(dir, "planted") {
			return nil
		}
		to, err := filepath.EvalSymlinks(path)
		if err == nil && to != dir && !strings.HasPrefix(to, dir+"/") && !strings.Contains(to, "/outside") {
			t.Errorf("%s leads to %s", path, to)
		}
		if link, _ := os.Readlink(path); err == nil && strings.Contains(to, "/outside") &&
			!strings.HasPrefix(link, "planted") && !strings.Contains(link, "/planted") {
			t.Errorf("%s leads out by %q", path, link)
		}
		return nil
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
