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
