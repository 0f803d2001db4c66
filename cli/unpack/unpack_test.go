package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/proto"
)

// archive writes members. Files contain body.
func archive(t testing.TB, body string, members ...tar.Header) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range members {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(body))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, body)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func file(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
}

func link(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func hard(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

func TestHostileArchives(t *testing.T) {
	tests := []struct {
		name    string
		members []tar.Header
		want    string // part of the error
	}{
		{"absolute", []tar.Header{file("/tmp/berth-unpack-evil")}, "absolute"},
		{"dotdot", []tar.Header{file("../evil")}, "outside"},
		{"dotdot in the middle", []tar.Header{file("a/../../evil")}, "outside"},
		{"just dotdot", []tar.Header{{Typeflag: tar.TypeDir, Name: ".."}}, "outside"},
		{"the directory itself", []tar.Header{link(".", "/tmp")}, "itself"},
		{"through an absolute link", []tar.Header{link("x", "OUTSIDE"), file("x/evil")}, "through the link"},
		{"through a relative link", []tar.Header{link("x", "../outside"), file("x/evil")}, "through the link"},
		{"through a link further up", []tar.Header{link("x", "../outside"), file("x/a/b/evil")}, "through the link"},
		{"through a link by another spelling", []tar.Header{link("x", "../outside"), file("./a/../x/evil")},
			"through the link"},
		{"through a link inside", []tar.Header{{Typeflag: tar.TypeDir, Name: "in"}, link("x", "in"), file("x/evil")},
			"through the link"},
		{"directory over a link", []tar.Header{link("x", "../outside"), {Typeflag: tar.TypeDir, Name: "x"}}, "link"},
		{"hard link out", []tar.Header{hard("x", "../outside/secret")}, "outside"},
		{"hard link to an absolute path", []tar.Header{hard("x", "OUTSIDE/secret")}, "absolute"},
		{"hard link through a link", []tar.Header{link("l", "../outside"), hard("x", "l/secret")}, "through the link"},
		{"hard link to a link", []tar.Header{link("l", "../outside/secret"), hard("x", "l")}, "not a file"},
		{"hard link through a link that was there", []tar.Header{hard("x", "was/secret")}, "cannot be written"},
		{"through a link that was there", []tar.Header{file("was/evil")}, "cannot be written"},
		{"directory through a link that was there", []tar.Header{{Typeflag: tar.TypeDir, Name: "was/evil"}},
			"cannot be written"},
		{"device", []tar.Header{{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}}, "device"},
		{"block device", []tar.Header{{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}}, "device"},
		{"fifo", []tar.Header{{Typeflag: tar.TypeFifo, Name: "f"}}, "FIFO"},
		{"file over a directory", []tar.Header{{Typeflag: tar.TypeDir, Name: "d"}, file("d")}, "replace a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dst, outside := place(t)
			for i, h := range tt.members {
				tt.members[i].Linkname = strings.Replace(h.Linkname, "OUTSIDE", outside, 1)
			}
			err := Tar(dst, archive(t, "evil", tt.members...), noNote)
			if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			untouched(t, outside)
		})
	}
}

// place creates a destination with a link out of it, and a directory beside it that must stay unchanged.
func place(t *testing.T) (dst, outside string) {
	t.Helper()
	dir := t.TempDir()
	dst, outside = filepath.Join(dir, "dst"), filepath.Join(dir, "outside")
	for _, d := range []string{dst, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../outside", filepath.Join(dst, "was")); err != nil {
		t.Fatal(err)
	}
	return dst, outside
}

func untouched(t *testing.T, outside string) {
	t.Helper()
	for dir, want := range map[string]int{outside: 1, filepath.Dir(outside): 2} {
		if list, err := os.ReadDir(dir); err != nil || len(list) != want {
			t.Errorf("%s holds %v, %v", filepath.Base(dir), list, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(outside, "secret"))
	if string(data) != "mine" {
		t.Errorf("the file outside is %q, %v", data, err)
	}
	if _, err := os.Lstat("/tmp/berth-unpack-evil"); err == nil {
		t.Error("an absolute member was written")
	}
}

// TestFilesReplaceLinks checks that a file replaces a link and does not follow it.
func TestFilesReplaceLinks(t *testing.T) {
	dst, outside := place(t)
	if err := os.Symlink("../outside/secret", filepath.Join(dst, "f")); err != nil {
		t.Fatal(err)
	}
	in := archive(t, "new", file("f"), link("g", "../outside/secret"), file("g"), file("was"))
	if err := Tar(dst, in, noNote); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "g", "was"} {
		fi, err := os.Lstat(filepath.Join(dst, name))
		if err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	untouched(t, outside)
}

func TestOrdinaryArchive(t *testing.T) {
	dst, _ := place(t)
	when := time.Unix(1_600_000_000, 0)
	readonly := tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o555, ModTime: when}
	setid := file("d/x")
	setid.Mode, setid.ModTime = 0o6755, when
	err := Tar(dst, archive(t, "text", tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o700},
		readonly, setid, file("no/parent"), hard("h", "d/x"), link("l", "d/x"), link("dangling", "/nowhere")), noNote)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(dst, "d/x"))
	if err != nil || fi.Mode() != 0o755 || !fi.ModTime().Equal(when) {
		t.Errorf("d/x: %v %v", fi, err)
	}
	if fi, err := os.Stat(filepath.Join(dst, "d")); err != nil || fi.Mode() != fs.ModeDir|0o755 ||
		!fi.ModTime().Equal(when) {
		t.Errorf("d: %v %v", fi, err)
	}
	for _, name := range []string{"no/parent", "h", "l"} {
		if data, err := os.ReadFile(filepath.Join(dst, name)); string(data) != "text" {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	if target, err := os.Readlink(filepath.Join(dst, "dangling")); target != "/nowhere" {
		t.Errorf("the link points to %q, %v", target, err)
	}
}

// noNote drops what is noted.
func noNote(proto.ArchiveNote, string) {}

// TestLeftOut checks that Tar and Read report files that are listed as left out or unreadable, even if the rest is no
// archive.
func TestLeftOut(t *testing.T) {
	data, err := io.ReadAll(archive(t, "text", file("f"), *proto.ArchiveLeftOut.Header("d/a pipe"),
		*proto.ArchiveNote("of another kind").Header(""), *proto.ArchiveUnreadable.Header("b"),
		*proto.ArchiveIncomplete.Header("f")))
	if err != nil {
		t.Fatal(err)
	}
	dst, _ := place(t)
	for how, unpacked := range map[string]func(noteFunc) error{
		"unpacked": func(told noteFunc) error { return Tar(dst, bytes.NewReader(data), told) },
		"read":     func(told noteFunc) error { return Read(bytes.NewReader(data), told) },
		"no end": func(told noteFunc) error {
			return Read(io.MultiReader(bytes.NewReader(data[:len(data)-1024]), strings.NewReader("?")), told)
		},
	} {
		var names []string
		if err := unpacked(func(n proto.ArchiveNote, name string) { names = append(names, string(n)+name) }); err != nil ||
			strings.Join(names, ", ") != "left out: d/a pipe, unreadable: b, incomplete: f" {
			t.Errorf("%s: %q, %v", how, names, err)
		}
	}
}

type noteFunc = func(proto.ArchiveNote, string)

// TestCutOffArchive checks that an archive that ends within a file keeps the old file and leaves no partial one.
func TestCutOffArchive(t *testing.T) {
	dst, _ := place(t)
	if err := os.WriteFile(filepath.Join(dst, "f"), []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "new/g"} {
		data, _ := io.ReadAll(archive(t, strings.Repeat("x", 5000), file(name)))
		if err := Tar(dst, bytes.NewReader(data[:2000]), noNote); err == nil {
			t.Error("half an archive was taken for a whole one")
		}
	}
	if data, err := os.ReadFile(filepath.Join(dst, "f")); string(data) != "earlier" {
		t.Errorf("f is %q, %v", data, err)
	}
	for dir, want := range map[string]int{"": 3, "new": 0} { // beside f: the link of place, and new
		if list, err := os.ReadDir(filepath.Join(dst, dir)); err != nil || len(list) != want {
			t.Errorf("%q holds %v, %v", dir, list, err)
		}
	}
}

func FuzzTar(f *testing.F) {
	data, _ := io.ReadAll(archive(f, "x", file("a"), link("l", ".."), file("l/b"), hard("h", "a")))
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		dst := filepath.Join(dir, "dst")
		if err := os.Mkdir(dst, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = Tar(dst, bytes.NewReader(data), noNote)
		if list, _ := os.ReadDir(dir); len(list) != 1 {
			t.Fatalf("%v beside the destination", list)
		}
	})
}

// BenchmarkTar unpacks files in many directories, as `berth cp` does.
func BenchmarkTar(b *testing.B) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	content := make([]byte, 4096)
	for i := range 2000 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("a/b/%d/%d", i/100, i),
			Size: int64(len(content)), Mode: 0o644}); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		dir, err := os.MkdirTemp("/dev/shm", "unpack-")
		if err == nil {
			err = errors.Join(Tar(dir, bytes.NewReader(archive.Bytes()), noNote), os.RemoveAll(dir))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/2000, "us/file")
}
