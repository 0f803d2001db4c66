package pid1

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/proto"
)

func ptr[T any](v T) *T { return &v }

func (w *world) edit(in proto.EditorInput) (proto.EditorResult, error) {
	w.t.Helper()
	return w.Edit(short(w.t), "user", in)
}

func TestEditorView(t *testing.T) {
	w := newWorld(t, false)
	w.put("f", "l1\nl2\nl3\nl4\n")
	w.put("open", "l1\nl2")
	w.put("empty", "")
	w.put("crlf", "a\r\nb\r\n")
	for _, c := range []struct {
		path                 string
		lines                []int
		content              string
		num, start, totalLen int
	}{
		{"f", nil, "l1\nl2\nl3\nl4", 4, 1, 4},
		{"f", []int{2, 3}, "l2\nl3", 2, 2, 4},
		{"f", []int{3, -1}, "l3\nl4", 2, 3, 4},
		{"f", []int{4, 4}, "l4", 1, 4, 4},
		{"open", nil, "l1\nl2", 2, 1, 2},
		{"open", []int{2, 2}, "l2", 1, 2, 2},
		{"empty", nil, "", 0, 1, 0},
		{"crlf", nil, "a\r\nb\r", 2, 1, 2},
	} {
		r, err := w.edit(proto.EditorInput{Command: "view", Path: c.path, ViewRange: c.lines})
		must(t, err)
		v := r.View
		if v.FileType != "text" || v.Type != proto.TypeEditorView || v.Content != c.content || *v.NumLines != c.num ||
			*v.StartLine != c.start || *v.TotalLines != c.totalLen {
			t.Errorf("%s %v: got %q %d %d %d", c.path, c.lines, v.Content, *v.NumLines, *v.StartLine, *v.TotalLines)
		}
	}
	for _, bad := range [][]int{{0, 1}, {5, 5}, {3, 2}, {1}, {1, 2, 3}, {1, 5}, {2, -2}} {
		_, err := w.edit(proto.EditorInput{Command: "view", Path: "f", ViewRange: bad})
		if text := wantCode(t, err, proto.InvalidArgument); !strings.Contains(text, "view_range") {
			t.Errorf("%v: %s", bad, text)
		}
	}
}

func TestEditorViewOther(t *testing.T) {
	w := newWorld(t, false)
	for name, head := range map[string]string{"png": "\x89PNG\r\n\x1a\n", "jpeg": "\xff\xd8\xff\xe0", "gif": "GIF89a",
		"webp": "RIFF\x00\x00\x00\x00WEBP", "pdf": "%PDF-1.7"} {
		text := head + "\x00rest"
		w.put(name+".txt", text)
		r, err := w.edit(proto.EditorInput{Command: "view", Path: name + ".txt"})
		must(t, err)
		want := "image"
		if name == "pdf" {
			want = "pdf"
		}
		if v := r.View; v.FileType != want || v.Content != base64.StdEncoding.EncodeToString([]byte(text)) ||
			v.NumLines != nil || v.StartLine != nil || v.TotalLines != nil {
			t.Errorf("%s: got %+v", name, r.View)
		}
	}
	w.put("binary", "\x7fELF\x00\x01")
	_, err := w.edit(proto.EditorInput{Command: "view", Path: "binary"})
	wantCode(t, err, proto.InvalidArgument)
	w.bash("mkdir -p d/sub/deep d/node_modules/x d/.git; touch d/a d/sub/b d/sub/deep/c d/.hidden d/sub/.h; yes | " +
		"head -c 20M >big; yes | head -c 1000 >huge; truncate -s 2G huge; mkfifo fifo; (head -c 30M /dev/zero | tr " +
		"'\\0' x; echo; echo end) >oneline")
	r, err := w.edit(proto.EditorInput{Command: "view", Path: "d"})
	must(t, err)
	var got []string
	for _, fi := range r.List {
		got = append(got, strings.TrimPrefix(fi.Path, w.workspace+"/"))
	}
	if strings.Join(got, " ") != "d/a d/sub d/sub/b d/sub/deep" {
		t.Errorf("got %v", got)
	}
	for path, c := range map[string]struct {
		lines []int
		code  proto.Code
	}{
		"big": {nil, proto.TooLarge}, "huge": {[]int{1, 2}, proto.TooLarge}, "oneline": {[]int{1, 1}, proto.TooLarge},
		"fifo": {nil, proto.InvalidArgument}, "d": {[]int{1, 2}, proto.InvalidArgument}, "none": {nil, proto.NotFound},
		"/proc/1/environ": {nil, proto.PermissionDenied},
	} {
		_, err := w.edit(proto.EditorInput{Command: "view", Path: path, ViewRange: c.lines})
		wantCode(t, err, c.code)
	}
	if r, err := w.edit(proto.EditorInput{Command: "view", Path: "oneline", ViewRange: []int{2, -1}}); err != nil ||
		r.View.Content != "end" {
		t.Errorf("the end of a long file: %v", err)
	}
}

func TestEditorCreate(t *testing.T) {
	w := newWorld(t, false)
	for i, text := range []string{"a\r\nb", "", strings.Repeat("long ✓\n", 200_000)} {
		r, err := w.edit(proto.EditorInput{Command: "create", Path: "p/q/f", FileText: &text})
		must(t, err)
		if r.Create.IsFileUpdate != (i > 0) || w.get("p/q/f") != text {
			t.Errorf("%d: %+v", i, r.Create)
		}
	}
	w.bash("chmod 755 p/q/f; ln -s q/f p/link")
	_, err := w.edit(proto.EditorInput{Command: "create", Path: "p/link", FileText: ptr("x")})
	must(t, err)
	if r := w.bash("stat -c '%F %a' p/q/f p/link"); r.stdout != "regular file 755\nsymbolic link 777\n" {
		t.Errorf("got %q", r.stdout)
	}
	for _, in := range []proto.EditorInput{
		{Command: "create", Path: "p", FileText: ptr("x")}, {Command: "create", Path: "x"},
		{Command: "undo_edit", Path: "x"}, {Command: "create", FileText: ptr("x")},
	} {
		_, err := w.edit(in)
		wantCode(t, err, proto.InvalidArgument)
	}
}

func TestEditorReplaceErrors(t *testing.T) {
	w := newWorld(t, false)
	const text = "one\ntwo\ntwo two\n"
	w.put("f", text)
	for _, c := range []struct {
		in   proto.EditorInput
		code proto.Code
		say  string
	}{
		{proto.EditorInput{OldStr: ptr("three")}, proto.InvalidArgument, "No replacement was performed, old_str " +
			"`three` did not appear verbatim in"},
		{proto.EditorInput{OldStr: ptr("two"), NewStr: ptr("x")}, proto.InvalidArgument, "Multiple occurrences of " +
			"old_str `two` in lines [2, 3, 3]: 3 matches"},
		{proto.EditorInput{OldStr: ptr("\ntwo")}, proto.InvalidArgument, "in lines [1, 2]: 2 matches"},
		{proto.EditorInput{OldStr: ptr("")}, proto.InvalidArgument, "must not be empty"},
		{proto.EditorInput{}, proto.InvalidArgument, "old_str"},
		{proto.EditorInput{Path: "none", OldStr: ptr("x")}, proto.NotFound, "does not exist"},
		{proto.EditorInput{Path: ".", OldStr: ptr("x")}, proto.InvalidArgument, "is a directory"},
		{proto.EditorInput{Command: "insert", InsertText: ptr("x")}, proto.InvalidArgument, "insert_line"},
		{proto.EditorInput{Command: "insert", InsertLine: ptr(1)}, proto.InvalidArgument, "insert_text"},
		{proto.EditorInput{Command: "insert", InsertLine: ptr(4), InsertText: ptr("x")}, proto.InvalidArgument,
			"[0, 3]"},
		{proto.EditorInput{Command: "insert", InsertLine: ptr(-1), InsertText: ptr("x")}, proto.InvalidArgument,
			"[0, 3]"},
	} {
		if c.in.Command == "" {
			c.in.Command = "str_replace"
		}
		if c.in.Path == "" {
			c.in.Path = "f"
		}
		_, err := w.edit(c.in)
		if got := wantCode(t, err, c.code); !strings.Contains(got, c.say) {
			t.Errorf("%+v: %s", c.in, got)
		}
	}
	if w.get("f") != text {
		t.Error("a failed edit changed the file")
	}
}

// TestEditorConcurrentEdits checks that no concurrent edit of a file is lost.
func TestEditorConcurrentEdits(t *testing.T) {
	w := newWorld(t, false)
	const n = 40
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "line %d of many\n", i)
	}
	w.put("f", text.String())
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			old, now := fmt.Sprintf("line %d of", i), fmt.Sprintf("done %d of", i)
			if _, err := w.Edit(short(t), "user", proto.EditorInput{Command: "str_replace", Path: "f", OldStr: &old,
				NewStr: &now}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := w.get("f"); strings.Contains(got, "line") || strings.Count(got, "\n") != n {
		t.Errorf("edits were lost: %d lines are as they were", strings.Count(got, "line"))
	}
}

// TestEditorManyLines edits a file with the maximum number of lines in a container with little memory.
func TestEditorManyLines(t *testing.T) {
	w := newWorld(t, false, cgroup+"="+memoryCgroup(t, 640<<20)) // includes memory of the race detector
	must(t, os.WriteFile(filepath.Join(w.workspace, "f"), append(bytes.Repeat([]byte{'\n'}, 16<<20-10), "x\n"...),
		0o666))
	must(t, os.Chmod(filepath.Join(w.workspace, "f"), 0o666))
	old, newer, line := "x", "y", 16<<20-10
	for _, in := range []proto.EditorInput{
		{Command: "str_replace", Path: "f", OldStr: &old, NewStr: &newer}, {Command: "insert", Path: "f",
			InsertLine: &line, InsertText: &old},
	} {
		r, err := w.Edit(short(t), "user", in)
		must(t, err)
		if r.Replace == nil || *r.Replace.OldStart != 16<<20-10-2 || len(r.Replace.Lines) != 5 {
			t.Errorf("%s: %+v", in.Command, r.Replace)
		}
	}
	if b, err := os.ReadFile(filepath.Join(w.workspace, "f")); err != nil ||
		!bytes.HasSuffix(b, []byte("\n\nx\ny\n")) || len(b) != 16<<20-6 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestEditorLineEnds checks both edits of a file with Windows line ends.
func TestEditorLineEnds(t *testing.T) {
	w := newWorld(t, false)
	w.put("f", "a\r\n\tb\r\nc\r\n")
	for _, in := range []proto.EditorInput{
		{Command: "str_replace", Path: "f", OldStr: ptr("\tb\nc"), NewStr: ptr("\tx\nc")},
		{Command: "insert", Path: "f", InsertLine: ptr(1), InsertText: ptr("y\nz")},
		{Command: "insert", Path: "f", InsertLine: ptr(5), InsertText: ptr("end")},
	} {
		if _, err := w.edit(in); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.get("f"); got != "a\r\ny\r\nz\r\n\tx\r\nc\r\nend" {
		t.Errorf("got %q", got)
	}
}
