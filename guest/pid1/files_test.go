package pid1

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

func (w *world) put(path, text string) {
	w.t.Helper()
	if _, err := w.Write(short(w.t), "user", path, wire.WriteOptions{}, strings.NewReader(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(path string) string {
	w.t.Helper()
	r, _, err := w.Read(short(w.t), "user", path, 0, -1)
	must(w.t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	must(w.t, err)
	return string(b)
}

// temps lists the temporary files of unfinished writes.
func (w *world) temps() []string {
	var found []string
	_ = filepath.Walk(w.workspace, func(p string, _ os.FileInfo, _ error) error {
		if strings.Contains(p, ".berth-") {
			found = append(found, p)
		}
		return nil
	})
	return found
}

func TestWriteAndRead(t *testing.T) {
	checkLeaks(t)
	w := newWorld(t, false)
	big := make([]byte, 5<<20+123)
	_, _ = rand.Read(big)
	fi, err := w.Write(short(t), "user", "a/b/file", wire.WriteOptions{Mode: 0o750, Hash: true}, bytes.NewReader(big))
	must(t, err)
	sum := sha256.Sum256(big)
	if fi.SHA256 != hex.EncodeToString(sum[:]) || fi.SizeBytes != int64(len(big)) || fi.Mode != "0750" ||
		fi.UID != 1000 ||
		fi.Path != filepath.Join(w.workspace, "a/b/file") || fi.Type != proto.TypeFile {
		t.Errorf("got %+v", fi)
	}
	for _, c := range []struct{ off, n, from, to int64 }{
		{0, -1, 0, int64(len(big))}, {100, 50, 100, 150}, {int64(len(big)) - 3, 100, int64(len(big)) - 3,
			int64(len(big))}, {1 << 40, 5, 0, 0}, {7, 0, 0, 0},
	} {
		r, info, err := w.Read(short(t), "user", "a/b/file", c.off, c.n)
		must(t, err)
		got, err := io.ReadAll(iotest.OneByteReader(io.LimitReader(r, 1000)))
		must(t, err)
		rest, err := io.ReadAll(r)
		must(t, err)
		must(t, r.Close())
		if got = append(got, rest...); !bytes.Equal(got, big[c.from:c.to]) || info.SizeBytes != int64(len(big)) {
			t.Errorf("%+v: got %d bytes", c, len(got))
		}
	}
	r, _, err := w.Read(short(t), "user", "a/b/file", 0, -1)
	must(t, err)
	must(t, r.Close()) // before the end of the file
	w.put("a/b/file", "new")
	if fi, err := w.Stat(short(t), "user", "a/b/file"); err != nil || fi.Mode != "0750" || w.get("a/b/file") != "new" {
		t.Errorf("replaced: %+v %v", fi, err)
	}
	_, err = w.Write(short(t), "user", "a/b/file", wire.WriteOptions{Exclusive: true}, strings.NewReader("x"))
	wantCode(t, err, proto.AlreadyExists)
	if len(w.temps()) > 0 {
		t.Errorf("left %v", w.temps())
	}
}

// TestWriteInterrupted checks that an interrupted write leaves the old file and no other.
func TestWriteInterrupted(t *testing.T) {
	w := newWorld(t, false)
	w.put("file", "old")
	cut := errors.New("cut off")
	for _, e := range []error{cut, io.ErrUnexpectedEOF} {
		body := io.MultiReader(strings.NewReader(strings.Repeat("new", 1<<20)), iotest.ErrReader(e))
		if _, err := w.Write(short(t), "user", "file", wire.WriteOptions{}, body); !errors.Is(err, e) {
			t.Errorf("got %v, want the reader's own %v", err, e)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	body := readFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	_, err := w.Write(ctx, "user", "file", wire.WriteOptions{}, body)
	wantCode(t, err, proto.Canceled)
	eventually(t, "no temporary file", func() bool { return len(w.temps()) == 0 })
	if got := w.get("file"); got != "old" {
		t.Errorf("the old file is %d bytes now", len(got))
	}
}

// TestPermissions checks that the kernel checks the permissions of the requesting user.
func TestPermissions(t *testing.T) {
	w := newWorld(t, false)
	secret := filepath.Join(w.dir, "secret")
	must(t, os.WriteFile(secret, []byte("s"), 0o600))
	must(t, os.Symlink(secret, filepath.Join(w.workspace, "link")))
	must(t, os.WriteFile(filepath.Join(w.workspace, "roots"), []byte("r"), 0o644))
	ctx := short(t)
	for name, try := range map[string]func(as string) error{
		"read": func(as string) error { r, _, err := w.Read(ctx, as, "link", 0, -1); closeIf(r); return err },
		"write": func(as string) error {
			_, err := w.Write(ctx, as, "link", wire.WriteOptions{}, strings.NewReader("x"))
			return err
		},
		"replace": func(as string) error {
			_, err := w.Write(ctx, as, "roots", wire.WriteOptions{}, strings.NewReader("x"))
			return err
		},
		"mkdir": func(as string) error { return w.Mkdir(ctx, as, filepath.Join(w.dir, "made")) },
		"edit": func(as string) error {
			_, err := w.Edit(ctx, as, proto.EditorInput{Command: "view", Path: secret})
			return err
		},
		"move":   func(as string) error { return w.Move(ctx, as, secret, "stolen") },
		"remove": func(as string) error { return w.Remove(ctx, as, secret, false) },
	} {
		wantCode(t, try("user"), proto.PermissionDenied)
		if name == "move" || name == "remove" {
			continue
		}
		if err := try("root"); err != nil {
			t.Errorf("root: %s: %v", name, err)
		}
	}
	// When root replaces a file, the owner stays the same.
	w.put("mine", "x")
	fi, err := w.Write(ctx, "root", "mine", wire.WriteOptions{}, strings.NewReader("y"))
	if err != nil || fi.UID != 1000 {
		t.Errorf("got %+v, %v", fi, err)
	}
	_, err = w.Stat(ctx, "no-such-user", "x")
	wantCode(t, err, proto.InvalidArgument)
	if r := w.bash("id -u"); r.stdout != "1000\n" {
		t.Errorf("after that: %+v", r)
	}
}

func closeIf(r io.Closer) {
	if r != nil {
		_ = r.Close()
	}
}

func TestOddFiles(t *testing.T) {
	w := newWorld(t, false)
	in := func(name string) string { return filepath.Join(w.workspace, name) }
	must(t, unix.Mkfifo(in("fifo"), 0o666))
	must(t, os.Chmod(in("fifo"), 0o666))
	must(t, os.Symlink("loop", in("loop")))
	must(t, os.Symlink("/etc/passwd", in("out")))
	must(t, os.WriteFile(in("bad\xffname\n"), []byte("x"), 0o644))
	ctx := short(t)
	for path, code := range map[string]proto.Code{
		"fifo": proto.InvalidArgument, "loop": proto.InvalidArgument, ".": proto.InvalidArgument,
		"none": proto.NotFound, "": proto.InvalidArgument,
		"a\x00b": proto.InvalidArgument, "fifo/x": proto.InvalidArgument,
		strings.Repeat("n", 256): proto.InvalidArgument, "/dev/null": proto.InvalidArgument,
	} {
		_, _, err := w.Read(ctx, "user", path, 0, -1)
		wantCode(t, err, code)
		if path != "none" && !strings.Contains(path, "/") {
			_, err = w.Write(ctx, "user", path, wire.WriteOptions{}, strings.NewReader("x"))
			wantCode(t, err, code)
		}
	}
	fi, err := w.Stat(ctx, "user", "out")
	if err != nil || fi.Type != proto.TypeSymlink || fi.Target != "/etc/passwd" {
		t.Errorf("got %+v, %v", fi, err)
	}
	fi, err = w.Stat(ctx, "user", "bad\xffname\n")
	if err != nil || string(fi.RawPath) != in("bad\xffname\n") || fi.Path != in("bad\uFFFDname\n") {
		t.Errorf("got %+v, %v", fi, err)
	}
	list, truncated, err := w.List(ctx, "user", ".")
	must(t, err)
	var names []string
	for _, fi := range list {
		names = append(names, filepath.Base(fi.Path))
	}
	if !slices.Equal(names, []string{"bad\uFFFDname\n", "fifo", "loop", "out"}) || truncated {
		t.Errorf("got %q", names)
	}
	files, truncated, err := w.Walk(ctx, "user", ".", 100)
	if err != nil || len(files) != 3 || truncated {
		t.Errorf("walk: %+v %v %v", files, truncated, err)
	}
	all, err := w.WalkAll(ctx, "user", ".", 100, "")
	files, truncated = all.Files, all.Truncated
	if err != nil || len(files) != 4 || files[1].Type != proto.TypeOther || truncated {
		t.Errorf("walk of all: %+v %v %v", files, truncated, err)
	}
	sums, err := w.Hash(ctx, "user", []string{"fifo", "none", "bad\xffname\n", "out"})
	want := sha256.Sum256([]byte("x"))
	if err != nil || len(sums) != 1 || sums["bad\xffname\n"] != hex.EncodeToString(want[:]) {
		t.Errorf("got %v, %v", sums, err)
	}
}

func TestLargeListings(t *testing.T) {
	w := newWorld(t, false)
	const n = wire.MaxList + 5
	w.run(wire.Command{Text: fmt.Sprintf("mkdir d && cd d && seq -f f%%05.0f %d | xargs touch", n)})
	list, truncated, err := w.List(short(t), "user", "d")
	if err != nil || len(list) != wire.MaxList || !truncated {
		t.Errorf("got %d, %v, %v", len(list), truncated, err)
	}
	if !slices.IsSortedFunc(list, func(a, b proto.FileInfo) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("not sorted")
	}
	for max, want := range map[int]int{n: n, 7: 7, n + 9: n} {
		files, truncated, err := w.Walk(short(t), "user", "d", max)
		if err != nil || len(files) != want || truncated != (max < n) {
			t.Errorf("walk of %d: %d, %v, %v", max, len(files), truncated, err)
		}
	}
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("d/f%05d", i+1)
	}
	sums, err := w.Hash(short(t), "user", paths)
	if err != nil || len(sums) != n {
		t.Errorf("hashed %d, %v", len(sums), err)
	}
}

func TestRemove(t *testing.T) {
	w := newWorld(t, false)
	ctx := short(t)
	w.put("d/keep/x", "x")
	w.put("victim/file", "x")
	must(t, os.Symlink("../d/keep", filepath.Join(w.workspace, "victim/link")))
	must(t, os.Symlink("d", filepath.Join(w.workspace, "dirlink")))
	wantCode(t, w.Remove(ctx, "user", "victim", false), proto.Conflict)
	must(t, w.Remove(ctx, "user", "victim", true))
	must(t, w.Remove(ctx, "user", "dirlink", true))
	if w.get("d/keep/x") != "x" {
		t.Error("a link was followed")
	}
	must(t, w.Remove(ctx, "user", "d/keep/x", false))
	must(t, w.Remove(ctx, "user", "d/keep", false))
	wantCode(t, w.Remove(ctx, "user", "d/keep", true), proto.NotFound)
	wantCode(t, w.Remove(ctx, "root", "/", true), proto.InvalidArgument)
	// Deeper than the maximum path length and the limit of descriptors.
	r := w.run(wire.Command{Argv: []string{"python3", "-c", `
import os
os.mkdir("deep"); os.chdir("deep")
for i in range(3000):
    os.mkdir("d" * 8); os.mkdir("e"); os.chdir("d" * 8)
open("f", "w")`}})
	if r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	must(t, w.Remove(ctx, "user", "deep", true))
	if entries, _ := os.ReadDir(w.workspace); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

func TestMove(t *testing.T) {
	w := newWorld(t, false)
	ctx := short(t)
	w.put("a", "a")
	w.put("dir/x", "x")
	must(t, w.Move(ctx, "user", "a", "new/place/b"))
	if w.get("new/place/b") != "a" {
		t.Error("not moved")
	}
	wantCode(t, w.Move(ctx, "user", "a", "c"), proto.NotFound)
	wantCode(t, w.Move(ctx, "user", "new/place/b", "dir"), proto.AlreadyExists)
	wantCode(t, w.Move(ctx, "user", "dir", "dir/inside"), proto.InvalidArgument)
}

func TestTarRoundTrip(t *testing.T) {
	checkLeaks(t)
	w := newWorld(t, false)
	r := w.bash(
		`mkdir -p src/sub/empty && cd src && head -c 3000000 /dev/urandom >big && echo hi >sub/x && chmod 751 sub/x && ln -s sub/x link && ln -s $'caf\xe9' odd && mkfifo fifo && touch -d 2020-02-02 sub/x && chmod 700 sub/empty`)
	if r.Code != 0 {
		t.Fatal(r)
	}
	archive, err := w.Tar(short(t), "user", "src")
	must(t, err)
	must(t, w.Untar(short(t), "user", "dst", archive, wire.UntarLimits{}))
	must(t, archive.Close())
	r = w.bash(
		`rm src/fifo; diff -r --no-dereference src dst && cd dst && stat -c '%a %Y' sub/x sub/empty && readlink link`)
	if !strings.HasPrefix(r.stdout, "751 1580") || !strings.HasSuffix(r.stdout, "sub/x\n") || r.Code != 0 {
		t.Errorf("got %d %q %q", r.Code, r.stdout, r.stderr)
	}
	_, err = w.Tar(short(t), "user", "none")
	wantCode(t, err, proto.NotFound)
}

func TestUntarRefuses(t *testing.T) {
	w := newWorld(t, false)
	w.bash("mkdir -p d outside; ln -s ../outside d/planted")
	for _, c := range []struct {
		name    string
		members []tar.Header
		code    proto.Code
	}{
		{"absolute", []tar.Header{{Name: "/abs"}}, proto.InvalidArgument},
		{"dotdot", []tar.Header{{Name: "a/../../x"}}, proto.InvalidArgument},
		{"link out", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../outside"}},
			proto.InvalidArgument},
		{"absolute link", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}},
			proto.InvalidArgument},
		{"hard link out", []tar.Header{{Name: "l", Typeflag: tar.TypeLink, Linkname: "../outside/x"}},
			proto.InvalidArgument},
		{"hard link to nothing", []tar.Header{{Name: "l", Typeflag: tar.TypeLink, Linkname: "nothing"}},
			proto.InvalidArgument},
		{"hard link to a link", []tar.Header{{Name: "s", Typeflag: tar.TypeSymlink, Linkname: "first"},
			{Name: "l", Typeflag: tar.TypeLink, Linkname: "s"}}, proto.InvalidArgument},
		{"device", []tar.Header{{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
			proto.InvalidArgument},
		{"fifo", []tar.Header{{Name: "f", Typeflag: tar.TypeFifo}}, proto.InvalidArgument},
		{"through a planted link", []tar.Header{{Name: "planted/x"}}, proto.InvalidArgument},
		{"link out through another", []tar.Header{{Name: "here", Typeflag: tar.TypeSymlink, Linkname: "."},
			{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "here/../../outside"}}, proto.InvalidArgument},
		{"link out by the way", []tar.Header{{Name: "here", Typeflag: tar.TypeSymlink, Linkname: "."},
			{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "here/../outside"}}, proto.InvalidArgument},
		{"link out, seen from where it is", []tar.Header{{Name: "here", Typeflag: tar.TypeSymlink, Linkname: "."},
			{Name: "here/l", Typeflag: tar.TypeSymlink, Linkname: "../outside"}}, proto.InvalidArgument},
		{"over a directory", []tar.Header{{Name: "dd/", Typeflag: tar.TypeDir}, {Name: "dd"}}, proto.InvalidArgument},
		{"too many", []tar.Header{{Name: "1"}, {Name: "2"}, {Name: "3"}, {Name: "4"}}, proto.TooLarge},
		{"too large", []tar.Header{{Name: "big", Size: 2 << 20}}, proto.TooLarge},
		{"too large together", []tar.Header{{Name: "1", Size: 600 << 10}, {Name: "2", Size: 600 << 10}},
			proto.TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			tw := tar.NewWriter(&b)
			for _, h := range append([]tar.Header{{Name: "first"}}, c.members...) {
				h.Mode = 0o644
				must(t, tw.WriteHeader(&h))
				_, _ = tw.Write(make([]byte, h.Size))
			}
			must(t, tw.Close())
			err := w.Untar(short(t), "user", "d", &b, wire.UntarLimits{Bytes: 1 << 20, Files: 4})
			if text := wantCode(t, err, c.code); !strings.Contains(text, "members before it were unpacked") {
				t.Errorf("it does not say what was done: %s", text)
			}
		})
	}
	if r := w.bash("ls outside; cat d/first"); r.stdout != "" {
		t.Errorf("something got out: %q", r.stdout)
	}
	wantCode(t, w.Untar(short(t), "user", "d", strings.NewReader("this is no archive"+strings.Repeat(" ", 1000)),
		wire.UntarLimits{}), proto.InvalidArgument)
	if len(w.temps()) > 0 {
		t.Errorf("left %v", w.temps())
	}
	// The same connection still works.
	w.put("after", "x")
}

// TestUntarLinks checks that links in an archive may point anywhere inside the target directory.
func TestUntarLinks(t *testing.T) {
	w := newWorld(t, false)
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	must(t, tw.WriteHeader(&tar.Header{Name: "g/", Typeflag: tar.TypeDir, Mode: 0o7755}))
	must(t, tw.WriteHeader(&tar.Header{Name: "./a/x", Mode: 0o4755, Size: 1, Uid: 0}))
	_, _ = tw.Write([]byte("1"))
	must(t, tw.WriteHeader(&tar.Header{Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "../a/x"}))
	must(t, tw.WriteHeader(&tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "a/x"}))
	must(t, tw.WriteHeader(&tar.Header{Name: "a/x", Mode: 0o600, Size: 1}))
	_, _ = tw.Write([]byte("2"))
	must(t, tw.Close())
	must(t, w.Untar(short(t), "user", "d", &b, wire.UntarLimits{}))
	if r := w.bash("cd d; cat a/x a/l h; stat -c '%a %u' a/x h g"); r.stdout != "221600 1000\n755 1000\n755 1000\n" {
		t.Errorf("got %q %q", r.stdout, r.stderr)
	}
}

// TestWriteBehindALinkedDirectory checks that a relative link is resolved from its real directory, as the kernel
// does, even if the path reaches that directory through a link.
func TestWriteBehindALinkedDirectory(t *testing.T) {
	w := newWorld(t, false)
	if r := w.bash("mkdir -p releases/1/etc releases/shared; echo old >releases/shared/config; " +
		"ln -s ../shared/config releases/1/config; ln -s releases/1 current; ln -s etc/../../shared/new " +
		"releases/1/new; ln -s current/etc/made/later dangling"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	for path, want := range map[string]string{
		"current/config": "releases/shared/config", "current/new": "releases/shared/new",
		"dangling": "releases/1/etc/made/later",
	} {
		fi, err := w.Write(short(t), "user", path, wire.WriteOptions{}, strings.NewReader("new"))
		must(t, err)
		if fi.Path != filepath.Join(w.workspace, want) && path != "dangling" || w.get(want) != "new" ||
			w.get(path) != "new" {
			t.Errorf("%s was written to %s", path, fi.Path)
		}
	}
	old, newer := "new", "newer"
	_, err := w.Edit(short(t), "user", proto.EditorInput{Command: "str_replace", Path: "current/config", OldStr: &old,
		NewStr: &newer})
	must(t, err)
	if r := w.bash("cat releases/shared/config; find . -type f | wc -l"); r.stdout != "newer3\n" {
		t.Errorf("%q", r.stdout)
	}
}

// TestUntarLinkToItself extracts an archive with an entry that is a link to itself. tar writes one for a file with
// two names that it is given twice.
func TestUntarLinkToItself(t *testing.T) {
	w := newWorld(t, false)
	if r := w.bash("mkdir g; echo abc >g/a; ln g/a g/b; echo z >g/z; tar -cf t.tar -C g a b a z"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	archive, err := os.Open(filepath.Join(w.workspace, "t.tar"))
	must(t, err)
	defer archive.Close()
	must(t, w.Untar(short(t), "user", "k", archive, wire.UntarLimits{}))
	if r := w.bash("cat k/a k/b k/z; stat -c %h k/a"); r.stdout != "abc\nabc\nz\n2\n" {
		t.Errorf("%+v", r)
	}
}

// TestRemoveAgain checks that a removal succeeds after an interrupted one.
func TestRemoveAgain(t *testing.T) {
	inMemory(t, "") // on a file system that lists the newest entries first
	w := newWorld(t, false)
	r := w.run(wire.Command{Argv: []string{"python3", "-c", fmt.Sprintf(`
import os
os.makedirs("deep/.berth-removing-1-1/kept")
os.chdir("deep")
for i in range(%d):
    os.mkdir("d"); os.chdir("d")`, deepFrom+5)}})
	if r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	must(t, w.Remove(short(t), "user", "deep", true))
}

// A readFunc is a function that implements io.Reader.
type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// deepFrom is the depth in directories from which a removal moves deeper directories up.
const deepFrom = 50

// TestTarOfUnreadableFiles checks that an archive has all that its user may read, and names the rest.
func TestTarOfUnreadableFiles(t *testing.T) {
	w := newWorld(t, false)
	w.run(wire.Command{User: "root", Text: "mkdir -p d/a d/closed d/z; " +
		"for f in a/1 closed/2 z/3 b; do echo x >d/$f; done; " +
		"echo key >d/n.key; chmod 700 d/closed; chmod 600 d/n.key"})
	r, err := w.Tar(t.Context(), "user", "d")
	must(t, err)
	defer r.Close()
	var got []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		if why, name, ok := proto.NoteOf(h); ok && why == proto.ArchiveUnreadable {
			got = append(got, "!"+name)
		} else {
			got = append(got, h.Name)
		}
	}
	if s := strings.Join(got, " "); s != "a/ a/1 b !closed !n.key z/ z/3" {
		t.Errorf("the archive has %s", s)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	if u := r.Unread(); u == nil || u.Count != 2 || strings.Join(u.Names, " ") != "closed n.key" {
		t.Errorf("unread at the end: %+v", u)
	}
}
