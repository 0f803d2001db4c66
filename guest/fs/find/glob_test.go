package find

import (
	"strings"
	"testing"
)

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, rel string
		fold      bool
		want      bool
	}{
		{"*.go", "a/b/c.go", false, true},
		{"*.go", "a.go/b", false, false},
		{"*.GO", "a/c.go", true, true},
		{"*.GO", "a/c.go", false, false},
		{"[a-c]?", "x/b1", false, true},
		{"a/*.go", "a/c.go", false, true},
		{"a/*.go", "a/b/c.go", false, false},
		{"a/**/*.go", "a/b/c/d.go", false, true},
		{"a/**/*.go", "a/d.go", false, true},
		{"**/x/**", "a/b/x/c/d", false, true},
		{"**/x/**/y/z", "x/a/y/z/x/y/z", false, true},
		{"**/x/**/y/z", "x/a/y/z/x/y", false, false},
		{"/a/*", "a/b", false, true},
		{"**", "a/b", false, true},
		{"\xff*", "d/\xffname", false, true},
		{"a\nb", "d/a\nb", false, true},
	} {
		if got := newGlobs([]string{c.glob}, c.fold).match(c.rel, c.rel[strings.LastIndex(c.rel, "/")+1:]); got != c.want {
			t.Errorf("%q on %q: %v", c.glob, c.rel, got)
		}
	}
	// A glob with many ** on a long path takes no time that a test would notice.
	long := strings.Repeat("**/a/", 60) + "b"
	if newGlobs([]string{long}, false).match(strings.Repeat("a/", 2000)+"c", "c") {
		t.Error("matched")
	}
}
