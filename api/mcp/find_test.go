package mcp

import (
	"strings"
	"testing"
)

// TestFindFiles checks what a model reads of a search, and that a search goes on where it has ended.
func TestFindFiles(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	use(t, cs, "bash", map[string]any{"command": "mkdir -p /workspace/p/.git && cd /workspace/p && touch .git/x a.py b.py" +
		" $'new\\nline.py' && ln -s a.py link.py && truncate -s 12345 big.bin"})
	for _, c := range []struct {
		args map[string]any
		want []string // ends of the lines
	}{
		{map[string]any{"path": "p", "name": "*.py"}, []string{"/p/a.py", "/p/b.py", "/p/link.py -> a.py", `/p/new\nline.py"`}},
		{map[string]any{"path": "p", "exclude": ".git", "type": "file", "min_size": 1}, []string{"/p/big.bin"}},
		{map[string]any{"path": "p", "type": "directory"}, []string{"/p/.git/"}},
		{map[string]any{"path": "p", "name": "nothing"}, []string{"(nothing found)"}},
	} {
		res, text := use(t, cs, "find_files", c.args)
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if res.IsError || len(lines) != len(c.want) {
			t.Errorf("%v: %q", c.args, text)
			continue
		}
		for i, want := range c.want {
			if !strings.HasSuffix(lines[i], want) {
				t.Errorf("%v: %q does not end with %q", c.args, lines[i], want)
			}
		}
	}
	_, text := use(t, cs, "find_files", map[string]any{"path": "p", "name": "*.py", "limit": 3})
	_, after, ok := strings.Cut(text, "after=")
	if !ok {
		t.Fatalf("%q", text)
	}
	_, text = use(t, cs, "find_files", map[string]any{"path": "p", "name": "*.py", "limit": 3,
		"after": strings.TrimRight(after, ")\n")})
	if !strings.HasSuffix(text, "line.py\"\n") || strings.Count(text, "\n") != 1 {
		t.Errorf("%q", text)
	}
}

// TestGrepFiles checks what a model reads of a search for text.
func TestGrepFiles(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	use(t, cs, "bash", map[string]any{"command": "mkdir /workspace/g && cd /workspace/g && printf 'a\nneedle 1\nb\n' >x.py && " +
		"echo needle 2 >y.txt && yes needle | head -30000 >many.log"})
	for _, c := range []struct {
		args map[string]any
		want []string // parts of the text
	}{
		{map[string]any{"pattern": `needle \d`, "path": "g"}, []string{"/g/x.py:2:1:needle 1\n", "/g/y.txt:1:1:needle 2\n",
			"(2 matches in 2 of 3 files)"}},
		{map[string]any{"pattern": "NEEDLE", "ignore_case": true, "include": "*.py", "context": 1}, []string{
			"/g/x.py-1-a\n", "/g/x.py:2:1:needle 1\n", "/g/x.py-3-b\n"}},
		{map[string]any{"pattern": "needle", "path": "g/many.log"}, []string{"(200 matches in 1 of 1 files; there may be more"}},
		{map[string]any{"pattern": "nothing", "path": "g"}, []string{"(nothing found)"}},
	} {
		res, text := use(t, cs, "grep_files", c.args)
		for _, want := range c.want {
			if res.IsError || !strings.Contains(text, want) {
				t.Errorf("%v: no %q in %.300q", c.args, want, text)
			}
		}
	}
}
