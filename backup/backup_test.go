package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/runtime/diskpool"
)

// small returns an archive of two trees, images and files, and its manifest.
func small(t testing.TB, treeBytes int) ([]byte, Manifest) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ledgerName), []byte("records"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, ledgerName))
	if err != nil {
		t.Fatal(err)
	}
	s := stage{dir: dir, Source: Source{Images: images("an archive"), Pool: pool{bytes: treeBytes}},
		files: []staged{{ledgerName, info}}}
	s.Manifest = Manifest{Format: format, Version: "1", MadeAt: time.Unix(0, 0), Files: 1,
		Trees: []diskpool.Tree{{Name: "ws/a", Copy: 1}, {Name: "ws/b", Copy: 2}}}
	var b bytes.Buffer
	if err := s.write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), s.Manifest
}

// images and pool are content without a file system below it.
type images string

func (i images) SavedBytes(context.Context) (int64, error) { return int64(len(i)), nil }
func (i images) Save(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, string(i))
	return err
}

type pool struct {
	Pool
	bytes int
}

// Send writes a tree of the number of its copy.
func (p pool) Send(_ []diskpool.Tree, t diskpool.Tree, w io.Writer) error {
	_, err := w.Write(bytes.Repeat([]byte{byte(t.Copy)}, p.bytes))
	return err
}

func TestReadWhatWasWritten(t *testing.T) {
	archive, m := small(t, pieceBytes+5)
	var seen []string
	see := func(name string, r io.Reader) error {
		text, err := io.ReadAll(r)
		if len(text) > 20 {
			text = text[len(text)-1:]
		}
		seen = append(seen, name+"="+string(text))
		return err
	}
	err := Read(t.Context(), bytes.NewReader(archive), nil, Handler{
		Images: func(r io.Reader) error { return see("images", r) },
		Tree:   func(n string, r io.Reader) error { return see(n, r) },
		File:   func(h *tar.Header, r io.Reader) error { return see(h.Name, r) },
	})
	want := []string{"images=an archive", "1=\x01", "2=\x02", "ledger.db=records"}
	if err != nil || len(seen) != len(want) {
		t.Fatalf("%q, %v, want %q", seen, err, want)
	}
	for i := range want {
		if seen[i] != want[i] {
			t.Errorf("%q, want %q", seen[i], want[i])
		}
	}
	if got, err := Check(t.Context(), bytes.NewReader(archive), nil); err != nil || len(got.Trees) != len(m.Trees) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDamage cuts archives off and changes bytes of them.
func TestDamage(t *testing.T) {
	archive, m := small(t, 5000)
	for cut := 0; cut < len(archive)-3*512; cut += 700 { // what follows the end is padding
		if _, err := Check(t.Context(), bytes.NewReader(archive[:cut]), nil); !errors.Is(err, ErrNotWhole) &&
			!errors.Is(err, ErrNotABackup) {
			t.Errorf("cut off at %d of %d: %v", cut, len(archive), err)
		}
	}
	const block, sumEnd = 512, 155 // of tar; no reader looks at what ends the checksum of a header
	for at := range block + len(mustMarshal(m)) {
		if at == sumEnd {
			continue
		}
		damaged := bytes.Clone(archive)
		damaged[at] ^= 1
		if _, err := Check(t.Context(), bytes.NewReader(damaged), nil); err == nil {
			t.Errorf("a changed byte at %d is not noticed", at)
		}
	}
	damaged := bytes.Replace(archive, []byte("records"), []byte("Records"), 1)
	if _, err := Check(t.Context(), bytes.NewReader(damaged), nil); !errors.Is(err, ErrNotWhole) {
		t.Errorf("a changed file: %v", err)
	}
}

// TestNewerFormat: an archive of a later version says so.
func TestNewerFormat(t *testing.T) {
	var b bytes.Buffer
	w := &writer{tar: tar.NewWriter(&b), tally: tally{hash: sha256.New()}}
	if err := w.small(manifestName, mustMarshal(Manifest{Format: format + 1, Version: "9.0.0"})); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), &b, nil); !errors.Is(err, ErrNewer) {
		t.Errorf("%v, want %v", err, ErrNewer)
	}
}

// FuzzCheck: no archive makes Check panic, and one that differs from a whole one in its content is not whole.
func FuzzCheck(f *testing.F) {
	archive, _ := small(f, 5)
	f.Add(archive[:4096], []byte(nil))
	f.Add(archive[:512], archive[len(archive)-2048:])
	f.Add([]byte("\x28\xb5\x2f\xfd"), []byte("zstd"))
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		_, err := Check(t.Context(), io.MultiReader(bytes.NewReader(head), bytes.NewReader(tail)), nil)
		if err == nil && len(head)+len(tail) < len(archive)/2 {
			t.Error("half an archive is taken for a whole one")
		}
	})
}
