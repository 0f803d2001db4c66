package filename

import (
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzClean checks that an accepted name is valid for a browser, a shell and a file system.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a.txt", "/etc/passwd", "../../x", "..", "a/", "a\r\nX: y", "\x00", "caf\u00e9",
		"\u202Egnp.exe", `a"b`, strings.Repeat("n", 256), "\xff", "CON", " "} {
		f.Add(s, "text/plain")
	}
	f.Fuzz(func(t *testing.T, sent, mimeType string) {
		name, err := Clean(sent, mimeType)
		if err != nil {
			return
		}
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\"`) ||
			strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) ||
			utf8.RuneCountInString(name) > maxName {
			t.Errorf("%q became %q", sent, name)
		}
		if again, err := Clean(name, mimeType); err != nil || again != name {
			t.Errorf("%q became %q, and that %q, %v", sent, name, again, err)
		}
	})
}

// FuzzFromPath checks that a file of a container can be stored whatever its name is.
func FuzzFromPath(f *testing.F) {
	for _, s := range []string{"a", "dir/b.txt", "new\nline", "bad\xff", `a:b?"|*\<>`, "\x7f\u0085", "\u202Ex",
		strings.Repeat("é", 127), " ", "-rf", "..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rel string) {
		base := path.Base(rel)
		if rel == "" || base == "/" || base == "." || base == ".." || len(base) > 255 {
			return // no file can have this name
		}
		name := FromPath(rel)
		if got, err := Clean(name, ""); err != nil || got != name {
			t.Errorf("%q is stored as %q, which becomes %q: %v", rel, name, got, err)
		}
	})
}

// TestCheckPath checks which names with directories are accepted, and that each path of a container becomes one.
func TestCheckPath(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "a/b.png": true, "a/.b/c d": true, strings.Repeat("d/", 511) +
		"é": true, "": false, "/a": false, "a/": false, "a//b": false, ".": false, "..": false, "a/../b": false,
		"a/./b": false, `a\b`: false, "a/b\n": false, "a/\xff": false, strings.Repeat("n", 256) + "/a": false,
		strings.Repeat("d/", 512) + "a": false} {
		if err := CheckPath(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := FromTree("a:b/c\nd/\xff/e"); got != "a_b/c_d/_/e" || CheckPath(got) != nil {
		t.Errorf("%q", got)
	}
}

func TestExtensions(t *testing.T) {
	for mimeType, want := range map[string]string{"text/csv": "unnamed.csv", "text/csv; charset=utf-8": "unnamed.csv",
		"application/octet-stream": "unnamed.bin",
		"image/png":                "unnamed.png", "application/pdf": "unnamed.pdf", "text/plain": "unnamed.txt",
		"application/x-unknown": "unnamed.bin", "image/jpeg": "unnamed.jpg"} {
		if got, err := Clean("", mimeType); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", mimeType, got, err, want)
		}
	}
}
