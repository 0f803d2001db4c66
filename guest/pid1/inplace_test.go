package pid1

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// TestWriteInPlace checks that a file keeps its inode and what is not written, and the rules for links, permission and
// kinds of files.
func TestWriteInPlace(t *testing.T) {
	w := newWorld(t, false)
	write := func(as, path, text string, in proto.InPlace) (proto.FileInfo, error) {
		return w.Write(short(t), as, path, wire.WriteOptions{InPlace: &in}, strings.NewReader(text))
	}
	w.put("f", "0123456789")
	must(t, os.Link(filepath.Join(w.workspace, "f"), filepath.Join(w.workspace, "same")))
	must(t, os.Symlink("f", filepath.Join(w.workspace, "link")))
	for _, c := range []struct {
		path, text, want string
		in               proto.InPlace
	}{
		{"f", "ab", "01ab456789", proto.InPlace{Offset: 2}},
		{"link", "XY", "01ab456789XY", proto.InPlace{Append: true}},
		{"f", "Z", "0Z", proto.InPlace{Offset: 1, Truncate: true}},
		{"f", "new", "new", proto.InPlace{Truncate: true}},
		{"f", "", "n", proto.InPlace{Offset: 1, Truncate: true}},
		{"f", "x", "n\x00\x00x", proto.InPlace{Offset: 3}},
		{"f", "", "n\x00\x00x", proto.InPlace{Offset: 100}},
	} {
		fi, err := write("user", c.path, c.text, c.in)
		if got := w.get("same"); err != nil || got != c.want || fi.SizeBytes != int64(len(c.want)) {
			t.Errorf("%+v: %q %+v %v", c, got, fi, err)
		}
	}
	fi, err := w.Write(short(t), "user", "new/dir/f", wire.WriteOptions{Mode: 0o750, InPlace: &proto.InPlace{}},
		strings.NewReader("made"))
	if err != nil || fi.Mode != "0750" || fi.UID != 1000 || w.get("new/dir/f") != "made" {
		t.Errorf("%+v %v", fi, err)
	}
	secret := filepath.Join(w.dir, "secret")
	must(t, os.WriteFile(secret, []byte("s"), 0o600))
	must(t, os.Symlink(secret, filepath.Join(w.workspace, "out")))
	must(t, unix.Mkfifo(filepath.Join(w.workspace, "pipe"), 0o666))
	must(t, os.Chmod(filepath.Join(w.workspace, "pipe"), 0o666))
	for path, code := range map[string]proto.Code{"out": proto.PermissionDenied, "pipe": proto.InvalidArgument,
		"new": proto.InvalidArgument} {
		_, err := write("user", path, "x", proto.InPlace{})
		wantCode(t, err, code)
	}
	for _, in := range []proto.InPlace{{Offset: -1}, {Append: true, Offset: 1}, {Append: true, Truncate: true}} {
		_, err := write("user", "f", "x", in)
		wantCode(t, err, proto.InvalidArgument)
	}
	// An upload of unknown length that breaks changes nothing.
	cut := errors.New("cut off")
	body := io.MultiReader(strings.NewReader(strings.Repeat("y", wire.BodyBytes)), iotest.ErrReader(cut))
	w.put("g", strings.Repeat("z", 2*wire.BodyBytes))
	if _, err = w.Write(short(t), "user", "g", wire.WriteOptions{InPlace: &proto.InPlace{Truncate: true}}, body); !errors.Is(
		err, cut) {
		t.Errorf("%v", err)
	}
	if got := w.get("g"); got != strings.Repeat("z", 2*wire.BodyBytes) {
		t.Errorf("%d bytes, %.10q", len(got), got)
	}
}

// A write in place that the disk has no room for is refused before its first byte if its length is known, and leaves
// the file as long as it was otherwise. A new file is not left.
func TestWriteInPlaceOnAFullDisk(t *testing.T) {
	inMemory(t, "size=4m")
	w := newWorld(t, false)
	w.put("old", strings.Repeat("o", 64<<10))
	content := w.get("old")
	large := strings.Repeat("n", 8<<20)
	for name, c := range map[string]struct {
		in    proto.InPlace
		known bool
	}{
		"appended":              {proto.InPlace{Append: true}, true},
		"appended, unknown":     {proto.InPlace{Append: true}, false},
		"behind the end":        {proto.InPlace{Offset: 100 << 10}, true},
		"behind it, unknown":    {proto.InPlace{Offset: 64 << 10}, false},
		"over the old content":  {proto.InPlace{}, true},
		"in place of all of it": {proto.InPlace{Truncate: true}, true},
		"over it, unknown":      {proto.InPlace{Offset: 1 << 10}, false},
		"all of it, unknown":    {proto.InPlace{Truncate: true}, false},
	} {
		for _, file := range []string{"old", "dir/new"} {
			opt := wire.WriteOptions{InPlace: &c.in}
			if c.known {
				opt.Size = int64(len(large))
			}
			_, err := w.Write(short(t), "user", file, opt, strings.NewReader(large))
			wantCode(t, err, proto.QuotaExceeded)
			if w.get("old") != content {
				t.Errorf("%s: the old file has %d bytes after %s", name, len(w.get("old")), file)
			}
			if _, err := os.Lstat(filepath.Join(w.workspace, "dir/new")); err == nil {
				t.Errorf("%s: the new file is left", name)
			}
		}
	}
	// The space that was reserved is there for others if less is sent than was said.
	_, err := w.Write(short(t), "user", "old", wire.WriteOptions{InPlace: &proto.InPlace{Append: true},
		Size: 3 << 20}, strings.NewReader("x"))
	must(t, err)
	_, err = w.Write(short(t), "user", "other", wire.WriteOptions{}, strings.NewReader(large[:3<<20]))
	must(t, err)
	if got := w.get("old"); got != content+"x" {
		t.Errorf("%d bytes", len(got))
	}
}
