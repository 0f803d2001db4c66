package editor

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"berth/guest/fs/access"
	"berth/guest/fs/hunk"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// TestEditorSeesChanges checks that an edit fails if a command changed the file after the edit read it.
func TestEditorSeesChanges(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, []byte("one"), 0o644))
	root := user.NewUsers(1000, 1000).Root
	s := New(access.Workspace(dir))
	_, was, err := load(root, path)
	must(t, err)
	must(t, os.WriteFile(path, []byte("three"), 0o644))
	_, err = s.replaceFile(root, path, []byte("two"), was)
	wantCode(t, err, proto.Conflict)
	if b, err := os.ReadFile(path); err != nil || string(b) != "three" {
		t.Errorf("%q %v", b, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}

// FuzzEditor checks that an insertion keeps the old text, and that a replacement changes only the text it names.
func FuzzEditor(f *testing.F) {
	f.Add([]byte("a\nb\n"), "b", "c", 1)
	f.Add([]byte("a\r\nb"), "\r\n", "", 2)
	f.Add([]byte("aaa"), "aa", "\xff", 0)
	f.Add([]byte(""), "x", "\n", 0)
	dir := f.TempDir()
	root := user.NewUsers(1000, 1000).Root
	s := New(access.Workspace(dir))
	f.Fuzz(func(t *testing.T, text []byte, old, now string, line int) {
		path := filepath.Join(dir, "f")
		must(t, os.WriteFile(path, text, 0o644))
		_, err := s.Run(root, path, &proto.EditorInput{Command: "str_replace", OldStr: &old, NewStr: &now})
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
		_, err = s.Run(root, path, &proto.EditorInput{Command: "insert", InsertLine: &line, InsertText: &now})
		got, rerr = os.ReadFile(path)
		must(t, rerr)
		if err == nil && (!bytes.Contains(got, []byte(now)) || len(got) < len(text)+len(now) ||
			len(got) > len(text)+len(now)+2) || err != nil && !bytes.Equal(got, text) {
			t.Errorf("%q at %d of %q gives %q, %v", now, line, text, got, err)
		}
	})
}

// FuzzViewRange checks that a range of lines that is accepted begins at line 1 or later and is not reversed.
func FuzzViewRange(f *testing.F) {
	for _, s := range []string{`{}`, `{"op":"edit","path":"eA==","edit":{"command":"view","view_range":[1,-1]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req wire.Request
		if wire.Decode(raw, &req) != nil {
			return
		}
		if req.Edit != nil && len(req.Edit.ViewRange) > 0 {
			if first, last, err := rangeOf(req.Edit.ViewRange); err == nil && (first < 1 || last < first) {
				t.Errorf("lines %d to %d", first, last)
			}
		}
	})
}

func TestEditorInsert(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	root := user.NewUsers(1000, 1000).Root
	s := New(access.Workspace(dir))
	for _, c := range []struct {
		before string
		line   int
		text   string
		after  string
	}{
		{"a\nb\n", 0, "x\n", "x\na\nb\n"}, {"a\nb\n", 1, "x", "a\nx\nb\n"}, {"a\nb\n", 2, "x\n", "a\nb\nx\n"},
		{"a\nb\n", 2, "x", "a\nb\nx"}, {"a\nb", 2, "x\n", "a\nb\nx\n"}, {"", 0, "x\n", "x\n"}, {"a\n", 1, "", "a\n"},
		{"\ufeffa\r\n", 0, "x", "\ufeffx\r\na\r\n"}, {"\ufeffa\n", 1, "x\n", "\ufeffa\nx\n"}, {"\ufeff", 0, "x", "\ufeffx"},
	} {
		must(t, os.WriteFile(path, []byte(c.before), 0o644))
		r, err := s.Run(root, path, &proto.EditorInput{Command: "insert", Path: path, InsertLine: &c.line,
			InsertText: &c.text})
		must(t, err)
		if got, err := os.ReadFile(path); err != nil || string(got) != c.after {
			t.Errorf("%+v: got %q", c, got)
		}
		if want := hunk.Between([]byte(c.before), []byte(c.after)); !reflect.DeepEqual(*r.Replace, want) {
			t.Errorf("%+v: got %+v, want %+v", c, *r.Replace, want)
		}
	}
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

// TestLineEnds checks that edits with line feeds fit files with other line ends, and keep those.
func TestLineEnds(t *testing.T) {
	for _, c := range []struct{ text, old, replacement, want string }{
		{"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n"},
		{"a\r\nb\r\nc\r\n", "a\nb", "x\nb", "x\r\nb\r\nc\r\n"},
		{"a\r\nb\r\nc\r\n", "\nb", "\nx\ny", "a\r\nx\r\ny\r\nc\r\n"},
		{"a\r\nb\r\nc\r\n", "b", "x\ny", "a\r\nx\r\ny\r\nc\r\n"},
		{"a\r\nb", "b", "x\ny", "a\r\nx\r\ny"},
		{"a\r\nb\r\nc\r\n", "b\r\n", "b\n", "a\r\nb\nc\r\n"}, // on purpose
		{"a\r\nb\r\n", "b", "x\r\ny", "a\r\nx\r\ny\r\n"},
		{"a\nb\nc\n", "a\r\nb", "x\r\nb", "x\nb\nc\n"},
		{"a\nb\n", "a\n", "a\r\n", "a\r\nb\n"}, // on purpose
		{"a\nb\r\nc\nd\r\n", "b\nc", "x\ny\nc", "a\nx\r\ny\r\nc\nd\r\n"},
		{"a\r\nb\r\n", "a\r\nb\r\n", "x\r\n", "x\r\n"},
		{"é\r\n\r\nb\r\n", "é\n\nb", "é\nb", "é\r\nb\r\n"},
		{"a\rb\r\n", "a\rb", "x", "x\r\n"},
		{"\r\n\r\na", "\n\na", "a", "a"},
		{"a\r\nb\r\nc\r\n", "a\r\nb", "x\ny", "x\r\ny\r\nc\r\n"}, // not for the line ends alone
	} {
		p, _, n := find([]byte(c.text), []byte(c.old))
		got := c.text[:p.from] + string(p.fitted([]byte(c.text), []byte(c.old), []byte(c.replacement))) + c.text[p.to:]
		if n != 1 || got != c.want {
			t.Errorf("%q for %q in %q: %d places, %q, want %q", c.replacement, c.old, c.text, n, got, c.want)
		}
	}
	if _, lines, n := find([]byte("a\r\nb\r\na\r\nb\r\n"), []byte("a\nb")); n != 2 || lines != "1, 3" {
		t.Errorf("two places are told as %d in lines %s", n, lines)
	}
}
