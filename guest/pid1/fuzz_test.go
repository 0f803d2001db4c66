package pid1

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

// Whatever an archive holds, and whatever links are there already, nothing outside the directory is made, changed or
// linked to. Its seeds are in testdata/fuzz.
func FuzzUntar(f *testing.F) {
	f.Fuzz(func(t *testing.T, archive []byte) {
		base := t.TempDir()
		in, outside := filepath.Join(base, "in"), filepath.Join(base, "outside")
		must(t, os.Mkdir(in, 0o755))
		must(t, os.Mkdir(outside, 0o750))
		must(t, os.WriteFile(filepath.Join(outside, "kept"), []byte("kept"), 0o640))
		must(t, os.Symlink("../outside", filepath.Join(in, "planted")))
		root, err := openTree(in)
		must(t, err)
		defer root.close()
		u := &unpacker{root: root, limits: wire.UntarLimits{Bytes: 1 << 20, Files: 100}}
		if err := u.unpack(bytes.NewReader(archive)); err != nil && proto.CodeOf(u.explain(err)) == proto.Internal {
			t.Errorf("an internal error: %v", err)
		}
		kept, err := os.ReadFile(filepath.Join(outside, "kept"))
		entries, _ := os.ReadDir(outside)
		all, _ := os.ReadDir(base)
		st, sterr := os.Stat(outside)
		if err != nil || sterr != nil || string(kept) != "kept" || len(entries) != 1 || len(all) != 2 ||
			st.Mode().Perm() != 0o750 {
			t.Error("something outside was changed")
		}
		staysInside(t, in)
	})
}

// staysInside checks that no link below dir leads out of it, but for the one that was planted.
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

// A path that is taken is absolute, clean and without NUL.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"", ".", "..", "/", "a/../../b", "//x//", "/workspace/../etc", "a\x00b", "\xff/..",
		strings.Repeat("../", 100), "a/./b/"} {
		f.Add([]byte(s))
	}
	s := newServer(ServerOptions{Workspace: "/workspace"})
	f.Fuzz(func(t *testing.T, raw []byte) {
		path, err := s.pathOf(wire.OpStat, raw)
		if err != nil {
			return
		}
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.Contains(path, "\x00") ||
			strings.Contains(path+"/", "/../") {
			t.Errorf("%q became %q", raw, path)
		}
	})
}

// Requests of any form are refused or answered, by a guest that works on an empty directory as nobody in particular.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{`{}`, `{"op":"stat","path":"Lw=="}`,
		`{"op":"edit","path":"eA==","edit":{"command":"view","view_range":[1,-1]}}`,
		`{"op":"hash","paths":["eA==",""]}`, `{"op":"untar","untar":{"bytes":-1}}`,
		`{"op":"exec","command":{"argv":[""]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req wire.Request
		if wire.Decode(raw, &req) != nil {
			return
		}
		if req.Command != nil {
			_ = check(req.Command)
		}
		if n := clamp(req.Max, wire.MaxWalk); n < 0 || n > wire.MaxWalk {
			t.Errorf("%d entries", n)
		}
		if req.Edit != nil && len(req.Edit.ViewRange) > 0 {
			if first, last, err := rangeOf(req.Edit.ViewRange); err == nil && (first < 1 || last < first) {
				t.Errorf("lines %d to %d", first, last)
			}
		}
	})
}

// An insertion keeps all that was there, and a replacement is what it says.
func FuzzEditor(f *testing.F) {
	f.Add([]byte("a\nb\n"), "b", "c", 1)
	f.Add([]byte("a\r\nb"), "\r\n", "", 2)
	f.Add([]byte("aaa"), "aa", "\xff", 0)
	f.Add([]byte(""), "x", "\n", 0)
	dir := f.TempDir()
	s := newServer(ServerOptions{Workspace: dir})
	f.Fuzz(func(t *testing.T, text []byte, old, now string, line int) {
		path := filepath.Join(dir, "f")
		must(t, os.WriteFile(path, text, 0o644))
		_, err := s.edit(s.ids.root, path, &proto.EditorInput{Command: "str_replace", OldStr: &old, NewStr: &now})
		got, rerr := os.ReadFile(path)
		must(t, rerr)
		want := text
		if err == nil {
			want = bytes.Replace(text, []byte(old), []byte(now), 1)
		}
		if !bytes.Equal(got, want) || err == nil && bytes.Count(text, []byte(old)) != 1 {
			t.Errorf("%q for %q in %q gives %q, %v", now, old, text, got, err)
		}
		must(t, os.WriteFile(path, text, 0o644))
		_, err = s.edit(s.ids.root, path, &proto.EditorInput{Command: "insert", InsertLine: &line, InsertText: &now})
		got, rerr = os.ReadFile(path)
		must(t, rerr)
		if err == nil && (!bytes.Contains(got, []byte(now)) || len(got) < len(text)+len(now) ||
			len(got) > len(text)+len(now)+2) || err != nil && !bytes.Equal(got, text) {
			t.Errorf("%q at %d of %q gives %q, %v", now, line, text, got, err)
		}
	})
}
