package bench

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Text in the document is broken between words, and words that are too long stand alone.
func TestWrapText(t *testing.T) {
	text := "- **row**: " + strings.Repeat("éight ", 40) + strings.Repeat("x", 120) + " end."
	wrapped := wrapText(text)
	if strings.Join(strings.Fields(wrapped), " ") != text {
		t.Errorf("the words are others: %q", wrapped)
	}
	for i, line := range strings.Split(strings.TrimSuffix(wrapped, "\n"), "\n") {
		if i > 0 != strings.HasPrefix(line, "  ") {
			t.Errorf("indent of line %d: %q", i, line)
		}
		if n := utf8.RuneCountInString(line); n > pageWidth && !strings.Contains(line, "xxx") {
			t.Errorf("%d characters: %q", n, line)
		}
	}
}
