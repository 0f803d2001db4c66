package templates

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/proto"
)

// pack makes a compressed tar of names and contents. A name that ends with a slash is a directory.
func pack(t *testing.T, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(members); i += 2 {
		h := &tar.Header{Name: members[i], Mode: 0o644, Size: int64(len(members[i+1]))}
		if strings.HasSuffix(h.Name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, members[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An upload is its owner's alone, and no name in it leads out of the directory of its step.
func TestUploads(t *testing.T) {
	u := uploads{dir: t.TempDir(), most: 1 << 20, keep: 1 << 20}
	body := pack(t, "./", "", "a/", "", "a/b.txt", "hello", "../../escape", "out", "/abs", "root")
	if err := u.store(t.Context(), "ann", someHash, bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	if !u.has("ann", someHash) || u.has("bob", someHash) {
		t.Errorf("ann %t, bob %t", u.has("ann", someHash), u.has("bob", someHash))
	}
	var b bytes.Buffer
	if err := u.writeContext(&b, "FROM x\n", "ann", []string{someHash}); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(text)
	}
	want := map[string]string{"Dockerfile": "FROM x\n", "copy-1/": "", "copy-1/a/": "", "copy-1/a/b.txt": "hello",
		"copy-1/escape": "out", "copy-1/abs": "root"}
	for name, text := range want {
		if got, ok := found[name]; !ok || got != text {
			t.Errorf("%s is %q, %t", name, got, ok)
		}
	}
	if len(found) != len(want) {
		t.Errorf("%v", found)
	}
	if err := u.writeContext(io.Discard, "", "bob", []string{someHash}); err == nil {
		t.Error("another owner has these files")
	}
}

// What is no tar, or unpacks to too much, is not stored. Old uploads make room.
func TestUploadBounds(t *testing.T) {
	u := uploads{dir: t.TempDir(), most: 64 << 10, keep: 3 << 10}
	for name, body := range map[string][]byte{
		"text": bytes.Repeat([]byte("no tar"), 200), "a bomb": pack(t, "zeros", strings.Repeat("0", 128<<10)),
		"too long": make([]byte, 65<<10),
	} {
		if err := u.store(t.Context(), "ann", someHash, bytes.NewReader(body)); err == nil || u.has("ann", someHash) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := make([]byte, 1<<10) // an empty tar
	for i := range 5 {
		hash := strings.Repeat(string(rune('0'+i)), 64)
		if err := u.store(t.Context(), "ann", hash, bytes.NewReader(plain)); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(u.path("ann", hash), at, at); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(u.dir, "*", "*"))
	if err != nil || len(left) != 3 || u.has("ann", strings.Repeat("1", 64)) {
		t.Errorf("%v, %v", left, err)
	}
}

// A link is for one owner, one hash and one hour.
func TestLinks(t *testing.T) {
	tm := New(Config{Dir: t.TempDir()})
	defer tm.Close()
	up, err := tm.Link(proto.Caller{Owner: "ann", KeyID: "key_1"}, someHash, "http://d")
	if err != nil || up.Present {
		t.Fatalf("%+v, %v", up, err)
	}
	link, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := tm.Signed(someHash, link.Query()); err != nil || who.Owner != "ann" || who.KeyID != "key_1" {
		t.Errorf("%+v, %v", who, err)
	}
	other := strings.Repeat("0", 64)
	if _, err := tm.Signed(other, link.Query()); proto.CodeOf(err) != proto.PermissionDenied {
		t.Errorf("another hash: %v", err)
	}
	for name, value := range map[string]string{"owner": "bob", "key": "key_2", "expires": "99999999999", "signature": ""} {
		q := link.Query()
		q.Set(name, value)
		if _, err := tm.Signed(someHash, q); proto.CodeOf(err) != proto.PermissionDenied {
			t.Errorf("%s %q: %v", name, value, err)
		}
	}
	q := url.Values{"owner": {"ann"}, "key": {"key_1"}, "expires": {"1"}, "signature": {tm.sign("ann", "key_1", someHash, "1")}}
	if _, err := tm.Signed(someHash, q); proto.CodeOf(err) != proto.PermissionDenied {
		t.Errorf("an old link: %v", err)
	}
}
