package pid1

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// found returns the paths below dir that a search finds, page by page.
func (w *world) found(as, dir string, o proto.FindOptions) (paths []string, pages, skipped int) {
	w.t.Helper()
	for {
		p, err := w.Find(short(w.t), as, dir, o)
		must(w.t, err)
		for _, fi := range p.Files {
			path := fi.Path
			if fi.RawPath != nil {
				path = string(fi.RawPath)
			}
			rel, err := filepath.Rel(w.workspace, path)
			must(w.t, err)
			paths = append(paths, rel)
		}
		pages++
		skipped += p.Skipped
		if p.Next == nil {
			return paths, pages, skipped
		}
		o.Cursor = p.Next
	}
}

// TestFindSelects checks each condition, the order, and pages of every size.
func TestFindSelects(t *testing.T) {
	w := newWorld(t, false)
	for _, f := range []string{"a.go", "a/b.go", "a/c/d.go", "a/c/e.txt", "a.d/x", "b/README.md", "B.GO"} {
		w.put(f, f)
	}
	must(t, os.Symlink("a", filepath.Join(w.workspace, "link")))
	must(t, os.Symlink(".", filepath.Join(w.workspace, "a/loop")))
	must(t, unix.Mkfifo(filepath.Join(w.workspace, "pipe"), 0o644))
	must(t, os.Truncate(filepath.Join(w.workspace, "a.d/x"), 1<<40))
	old := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	must(t, os.Chtimes(filepath.Join(w.workspace, "B.GO"), old, old))
	all := "B.GO a a/b.go a/c a/c/d.go a/c/e.txt a/loop a.d a.d/x a.go b b/README.md link pipe"
	// By the bytes of names, and not of whole paths: what is in a stands right behind it, before a.d.
	one, small, cut := int64(1000), int64(5), proto.At(old.Add(time.Hour))
	for _, c := range []struct {
		o    proto.FindOptions
		want string
	}{
		{proto.FindOptions{}, all},
		{proto.FindOptions{Depth: 1}, "B.GO a a.d a.go b link pipe"},
		{proto.FindOptions{Depth: 2}, "B.GO a a/b.go a/c a/loop a.d a.d/x a.go b b/README.md link pipe"},
		{proto.FindOptions{Names: []string{"*.go"}}, "a/b.go a/c/d.go a.go"},
		{proto.FindOptions{Names: []string{"*.go"}, IgnoreCase: true}, "B.GO a/b.go a/c/d.go a.go"},
		{proto.FindOptions{Names: []string{"a/**/*.go", "*.md"}}, "a/b.go a/c/d.go b/README.md"},
		{proto.FindOptions{Exclude: []string{"c", "*.d"}}, "B.GO a a/b.go a/loop a.go b b/README.md link pipe"},
		{proto.FindOptions{Types: []proto.FileType{proto.TypeDirectory}}, "a a/c a.d b"},
		{proto.FindOptions{Types: []proto.FileType{proto.TypeSymlink, proto.TypeOther}}, "a/loop link pipe"},
		{proto.FindOptions{MinSize: one}, "a.d/x"},
		{proto.FindOptions{MaxSize: &small, Types: []proto.FileType{proto.TypeFile}}, "B.GO a.go"},
		{proto.FindOptions{Before: &cut}, "B.GO"},
		{proto.FindOptions{After: &cut, Depth: 1, Types: []proto.FileType{proto.TypeFile}}, "a.go"},
	} {
		for _, limit := range []int{0, 1, 2, 3, 1000} {
			c.o.Limit, c.o.Cursor = limit, nil
			if got, _, _ := w.found("user", ".", c.o); strings.Join(got, " ") != c.want {
				t.Errorf("%+v: %q", c.o, got)
			}
		}
	}
	if got, _, _ := w.found("user", "link", proto.FindOptions{Depth: 1}); len(got) != 3 {
		t.Errorf("through a link at the end: %q", got)
	}
	for dir, code := range map[string]proto.Code{"a.go": proto.InvalidArgument, "missing": proto.NotFound} {
		_, err := w.Find(short(t), "user", dir, proto.FindOptions{})
		wantCode(t, err, code)
	}
	for _, o := range []proto.FindOptions{{Names: []string{"[a"}}, {Depth: 201}, {Limit: -1}} {
		_, err := w.Find(short(t), "user", ".", o)
		wantCode(t, err, proto.InvalidArgument)
	}
}

// TestFindAttributes checks that entries have their attributes, which count in the size of a page.
func TestFindAttributes(t *testing.T) {
	w := newWorld(t, false)
	const count, each = 1500, 3000
	for i := range count {
		path := filepath.Join(w.workspace, fmt.Sprintf("%04d", i))
		must(t, os.WriteFile(path, nil, 0o644))
		must(t, unix.Setxattr(path, "user.a", bytes.Repeat([]byte("x"), each), 0))
	}
	p, err := w.Find(short(t), "user", ".", proto.FindOptions{})
	if err != nil || len(p.Files) == 0 || len(p.Files) == count || len(p.Next) == 0 {
		t.Fatalf("%d entries, %v", len(p.Files), err)
	}
	for _, fi := range p.Files {
		if len(fi.Attributes["a"]) != each {
			t.Fatalf("%s has %.100q", fi.Path, fi.Attributes)
		}
	}
}

// TestFindInHostileTrees checks trees that code may have made to hold up a search, to lead it elsewhere, or to break
// its answer.
func TestFindInHostileTrees(t *testing.T) {
	w := newWorld(t, false)
	if r := w.bash(`cd ` + w.workspace + `
		touch $'new\nline' $'bad\xff' "$(printf 'n%.0s' {1..255})"
		mkdir closed && touch closed/f && chmod 0 closed
		ln -s / root; ln -s self self; mkfifo pipe; truncate -s 1P huge
		for i in {1..250}; do mkdir d && cd d; done`); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	got, _, skipped := w.found("user", ".", proto.FindOptions{Limit: 7})
	if skipped != 2 {
		t.Errorf("left out %d directories, not the closed one and the deep one", skipped)
	}
	for _, want := range []string{"new\nline", "bad\xff", strings.Repeat("n", 255), "root", "self", "pipe", "huge",
		strings.Repeat("d/", 199) + "d"} {
		if !slices.Contains(got, want) {
			t.Errorf("%.40q is missing", want)
		}
	}
	if n := 8 + 200; len(got) != n { // with closed, and the directories that are not too deep
		t.Errorf("%d entries, not %d", len(got), n)
	}
	if got, _, _ := w.found("root", "closed", proto.FindOptions{}); len(got) != 1 {
		t.Errorf("root: %q", got)
	}
	// The file systems of the kernel's state are not entered, but can be listed.
	p, err := w.Find(short(t), "user", "/", proto.FindOptions{Depth: 2, Names: []string{"self"}})
	if err != nil || len(p.Files) != 0 {
		t.Errorf("%+v %v", p.Files, err)
	}
	if p, err := w.Find(short(t), "user", "/proc", proto.FindOptions{Depth: 1, Names: []string{"self"}}); err != nil ||
		len(p.Files) != 1 {
		t.Errorf("%+v %v", p.Files, err)
	}
}

// TestPagesOfAHugeDirectory lists a directory of 200,000 entries in pages while other entries come and go, and checks
// that each that stays is told once, in order, and that neither end holds the directory in memory.
func TestPagesOfAHugeDirectory(t *testing.T) {
	const stays = 200_000
	w := newWorld(t, false)
	dir, err := os.MkdirTemp("/dev/shm", "huge-") // in memory: on disk it would take minutes to fill
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Symlink(dir, filepath.Join(w.workspace, "huge")))
	for i := range stays {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("f%06d", i)))
		must(t, err)
		_ = f.Close()
	}
	before := w.peak()
	var names []string
	o := proto.FindOptions{Depth: 1, Limit: 10_000}
	for page := 0; ; page++ {
		p, err := w.Find(short(t), "user", "huge", o)
		must(t, err)
		for _, fi := range p.Files {
			if name := filepath.Base(fi.Path); name[0] == 'f' {
				names = append(names, name)
			}
		}
		if o.Cursor = p.Next; p.Next == nil {
			break
		}
		_ = os.Remove(filepath.Join(dir, fmt.Sprintf("x%d", page-1)))
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("a%d", page)), nil, 0o644)) // before all pages
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("x%d", page)), nil, 0o644)) // behind them
	}
	if len(names) != stays || !slices.IsSorted(names) || len(slices.Compact(names)) != stays {
		t.Errorf("%d names, sorted %v", len(names), slices.IsSorted(names))
	}
	// A page of 10,000 entries takes some 10 MB with all its copies. All entries at once would take 200.
	if grown := w.peak() - before; grown > 64<<20 {
		t.Errorf("the guest took %d MiB more", grown>>20)
	}
	if files, truncated, err := w.List(short(t), "user", "huge"); err != nil || !truncated || len(files) != wire.MaxList {
		t.Errorf("%d %v %v", len(files), truncated, err)
	}
}

// peak returns the largest resident set of the guest so far, in bytes.
func (w *world) peak() (n int64) {
	w.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.init.Process.Pid))
	must(w.t, err)
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	_, err = fmt.Sscan(rest, &n)
	must(w.t, err)
	return n << 10
}
