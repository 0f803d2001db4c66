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
	// What has arrived of an upload that breaks is there, and the file is not cut.
	cut := errors.New("cut off")
	body := io.MultiReader(strings.NewReader(strings.Repeat("y", wire.BodyBytes)), iotest.ErrReader(cut))
	w.put("g", strings.Repeat("z", 2*wire.BodyBytes))
	if _, err = w.Write(short(t), "user", "g", wire.WriteOptions{InPlace: &proto.InPlace{Truncate: true}}, body); !errors.Is(
		err, cut) {
		t.Errorf("%v", err)
	}
	if got := w.get("g"); len(got) != 2*wire.BodyBytes {
		t.Errorf("%d bytes", len(got))
	}
}
