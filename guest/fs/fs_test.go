package fs

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// Edits of many kinds give the hunk that diff -U3 gives. These texts are of six different lines only, to try
// all that can happen among equal ones; diff's own short cuts then lead it elsewhere once in a thousand.
func TestHunkEqualsDiff(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	alphabet := []string{"a", "b", "c", "", "  x", "a\r"}
	ends := []string{"\n", "\n", ""}
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(alphabet[rng.Intn(len(alphabet))] + "\n")
		}
		return strings.TrimSuffix(b.String(), "\n") + ends[rng.Intn(3)]
	}
	several, differing, off, total := 0, 0, 0, 0
	for range 1500 {
		before := text(rng.Intn(14))
		lines := strings.SplitAfter(before, "\n")
		from := rng.Intn(len(lines))
		to := from + rng.Intn(len(lines)-from+1)
		after := strings.Join(lines[:from], "") + text(rng.Intn(5)) + strings.Join(lines[to:], "")
		if before == after {
			continue
		}
		total++
		h := hunk([]byte(before), []byte(after))
		d := diffU3(t, before, after)
		switch {
		case d == nil:
			several++
		case d.numbers != numbersOf(h):
			off++
			t.Logf("%q -> %q: got %v, diff says %v", before, after, numbersOf(h), d.numbers)
		case d.lines != strings.Join(h.Lines, "\n"):
			differing++
		}
	}
	t.Logf("of %d edits diff made several hunks of %d, other numbers in %d, other lines in %d", total, several, off,
		differing)
	if several > total/10 || off > total/500 || differing > total/50 {
		t.Error("too many differ")
	}
}

// Lines of their own, as real files mostly have: then the hunk is diff's to the letter.
func TestHunkOfDistinctLines(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	for range 500 {
		var lines []string
		for i := range 5 + rng.Intn(30) {
			lines = append(lines, fmt.Sprintf("line %d\n", i))
		}
		before := strings.Join(lines, "")
		at := rng.Intn(len(lines))
		for i := at; i < min(len(lines), at+6); i++ { // some of a block are changed, some are not
			switch rng.Intn(4) {
			case 0:
				lines[i] = fmt.Sprintf("new %d\n", i)
			case 1:
				lines[i] = ""
			case 2:
				lines[i] += "added\n"
			}
		}
		after := strings.Join(lines, "")
		if rng.Intn(3) == 0 {
			after = strings.TrimSuffix(after, "\n")
		}
		if before == after {
			continue
		}
		compareWithDiff(t, before, after, hunk([]byte(before), []byte(after)))
	}
}

// A change of more lines than are shown is told by its numbers.
func TestHunkOfVeryManyLines(t *testing.T) {
	r := hunk([]byte("a\nb\nc\n"), []byte("a\n"+strings.Repeat("\n", maxHunkLines)+"c\n"))
	if len(r.Lines) != 0 || r.Lines == nil || *r.OldStart != 1 || *r.OldLines != 3 || *r.NewStart != 1 ||
		*r.NewLines != maxHunkLines+2 {
		t.Errorf("%d lines, -%d,%d +%d,%d", len(r.Lines), *r.OldStart, *r.OldLines, *r.NewStart, *r.NewLines)
	}
}

// What a command wrote between the reading and the writing of an edit is not undone by it.
func TestEditorSeesChanges(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, []byte("one"), 0o644))
	s := NewFS(dir, user.NewUsers(1000, 1000))
	_, was, err := load(s.users.Root, path)
	must(t, err)
	must(t, os.WriteFile(path, []byte("three"), 0o644))
	_, err = s.replaceFile(s.users.Root, path, []byte("two"), was)
	wantCode(t, err, proto.Conflict)
	if b, err := os.ReadFile(path); err != nil || string(b) != "three" {
		t.Errorf("%q %v", b, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}

// A tree is removed where nothing can be renamed, however deep it is, and not by way of what was moved meanwhile.
func TestRemoveDeep(t *testing.T) {
	dir := t.TempDir()
	top, err := os.Open(dir)
	must(t, err)
	defer top.Close()
	if out, err := exec.Command("python3", "-c", `
import os, sys
os.chdir(sys.argv[1])
os.mkdir("tree"); os.chdir("tree")
for i in range(3000):
    open("file", "w").close(); os.mkdir("a"); os.mkdir("empty"); os.symlink("/etc", "link")
    os.chdir("a")`, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	must(t, removeDeep(int(top.Fd()), "tree"))
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755))
	c, err := os.Open(filepath.Join(dir, "a", "b"))
	must(t, err)
	defer c.Close()
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	if _, err := ascend(c, level{st.Dev, st.Ino, "a"}); err == nil {
		t.Error("it went on above a tree that was moved")
	}
}

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
	s := NewFS("/workspace", user.NewUsers(1000, 1000))
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

// An insertion keeps all that was there, and a replacement is what it says.
func FuzzEditor(f *testing.F) {
	f.Add([]byte("a\nb\n"), "b", "c", 1)
	f.Add([]byte("a\r\nb"), "\r\n", "", 2)
	f.Add([]byte("aaa"), "aa", "\xff", 0)
	f.Add([]byte(""), "x", "\n", 0)
	dir := f.TempDir()
	s := NewFS(dir, user.NewUsers(1000, 1000))
	f.Fuzz(func(t *testing.T, text []byte, old, now string, line int) {
		path := filepath.Join(dir, "f")
		must(t, os.WriteFile(path, text, 0o644))
		_, err := s.edit(s.users.Root, path, &proto.EditorInput{Command: "str_replace", OldStr: &old, NewStr: &now})
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
		_, err = s.edit(s.users.Root, path, &proto.EditorInput{Command: "insert", InsertLine: &line, InsertText: &now})
		got, rerr = os.ReadFile(path)
		must(t, rerr)
		if err == nil && (!bytes.Contains(got, []byte(now)) || len(got) < len(text)+len(now) ||
			len(got) > len(text)+len(now)+2) || err != nil && !bytes.Equal(got, text) {
			t.Errorf("%q at %d of %q gives %q, %v", now, line, text, got, err)
		}
	})
}

// Requests on files of any form are refused or answered, by a guest that works on an empty directory as nobody in
// particular.
func FuzzFileRequest(f *testing.F) {
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

func FuzzHunk(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nx\nc"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		h := hunk(a, b)
		old, fresh := 0, 0
		for _, line := range h.Lines {
			switch line[0] {
			case ' ':
				old++
				fresh++
			case '-':
				old++
			case '+':
				fresh++
			}
		}
		if old != *h.OldLines || fresh != *h.NewLines {
			t.Errorf("%q -> %q: %+v", a, b, h)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode fails unless err has the code, and returns its message.
func wantCode(t testing.TB, err error, code proto.Code) string {
	t.Helper()
	if proto.CodeOf(err) != code {
		t.Fatalf("got error %v (%s), want %s", err, proto.CodeOf(err), code)
	}
	return err.Error()
}

// compareWithDiff checks that a hunk is diff's, to the letter.
func compareWithDiff(t *testing.T, before, after string, h proto.EditorReplace) {
	t.Helper()
	d := diffU3(t, before, after)
	if d != nil && (d.numbers != numbersOf(h) || d.lines != strings.Join(h.Lines, "\n")) {
		t.Errorf("%q -> %q: got %v %q, diff says %+v", before, after, numbersOf(h), h.Lines, *d)
	}
}

// A diffHunk is what diff says, if it is one hunk.
type diffHunk struct {
	numbers [4]int
	lines   string
}

// diffU3 runs the real one; nil if it makes several hunks.
func diffU3(t *testing.T, before, after string) *diffHunk {
	t.Helper()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, []byte(before), 0o644))
	must(t, os.WriteFile(b, []byte(after), 0o644))
	out, _ := exec.Command("diff", "-U3", a, b).Output()
	if len(out) == 0 {
		return &diffHunk{}
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")[2:]
	if strings.Contains(strings.Join(lines[1:], "\n"), "\n@@ ") {
		return nil
	}
	m := hunkHeader.FindStringSubmatch(lines[0])
	if m == nil {
		t.Fatalf("what is this: %q", lines[0])
	}
	d := &diffHunk{lines: strings.Join(lines[1:], "\n")}
	for i := range d.numbers {
		d.numbers[i] = 1
		if m[i+1] != "" {
			d.numbers[i], _ = strconv.Atoi(m[i+1])
		}
	}
	return d
}

func numbersOf(h proto.EditorReplace) [4]int {
	return [4]int{*h.OldStart, *h.OldLines, *h.NewStart, *h.NewLines}
}

func TestEditorInsert(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	s := NewFS(dir, user.NewUsers(1000, 1000))
	for _, c := range []struct {
		before string
		line   int
		text   string
		after  string
	}{
		{"a\nb\n", 0, "x\n", "x\na\nb\n"}, {"a\nb\n", 1, "x", "a\nx\nb\n"}, {"a\nb\n", 2, "x\n", "a\nb\nx\n"},
		{"a\nb\n", 2, "x", "a\nb\nx"}, {"a\nb", 2, "x\n", "a\nb\nx\n"}, {"", 0, "x\n", "x\n"}, {"a\n", 1, "", "a\n"},
	} {
		must(t, os.WriteFile(path, []byte(c.before), 0o644))
		r, err := s.edit(s.users.Root, path, &proto.EditorInput{Command: "insert", Path: path, InsertLine: &c.line,
			InsertText: &c.text})
		must(t, err)
		if got, err := os.ReadFile(path); err != nil || string(got) != c.after {
			t.Errorf("%+v: got %q", c, got)
		}
		compareWithDiff(t, c.before, c.after, *r.Replace)
	}
}

var hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$`)
