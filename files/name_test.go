package files

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A name that is taken is one that a browser, a shell and a file system can have.
func FuzzCleanName(f *testing.F) {
	for _, s := range []string{"", "a.txt", "/etc/passwd", "../../x", "..", "a/", "a\r\nX: y", "\x00", "caf\u00e9", "\u202Egnp.exe", `a"b`, strings.Repeat("n", 256), "\xff", "CON", " "} {
		f.Add(s, "text/plain")
	}
	f.Fuzz(func(t *testing.T, sent, mimeType string) {
		name, err := CleanName(sent, mimeType)
		if err != nil {
			return
		}
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\"`) || strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxNameLength {
			t.Errorf("%q became %q", sent, name)
		}
		if again, err := CleanName(name, mimeType); err != nil || again != name {
			t.Errorf("%q became %q, and that %q, %v", sent, name, again, err)
		}
	})
}
