package proto

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// TestUnreadText checks that names survive a header, whatever bytes they have, and that their text is bounded.
func TestUnreadText(t *testing.T) {
	names := []string{"a b", "日本/é", "x,y", "%41", "line\r\nSet-Cookie: a=b", "\xff", "plain-1_2.~/z", "\"'"}
	var u Unread
	for _, name := range names {
		u.Add(name)
	}
	text := u.Text()
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%q is no value of a header", text)
	}
	if got, ok := ParseUnread("8", text); !ok || got.Count != 8 || !slices.Equal(got.Names, names) {
		t.Errorf("%q became %q, %v", names, got.Names, ok)
	}
	var many Unread
	for range 100_000 {
		many.Add(strings.Repeat("日", 80))
	}
	if n := len(many.Text()); many.Count != 100_000 || n > MaxUnreadText || n < MaxUnreadText/2 {
		t.Errorf("%d names are %d bytes", many.Count, n)
	}
	if got, ok := ParseUnread("0", ""); !ok || got.Count != 0 || got.Names != nil {
		t.Errorf("none is %+v, %v", got, ok)
	}
	for _, count := range []string{"", "-1", "x"} {
		if _, ok := ParseUnread(count, "a"); ok {
			t.Errorf("the count %q was taken", count)
		}
	}
	if http.CanonicalHeaderKey(UnreadTrailer) != UnreadTrailer || http.CanonicalHeaderKey(UnreadNamesTrailer) !=
		UnreadNamesTrailer {
		t.Error("a trailer's name is not canonical")
	}
}

// TestCopyPadded checks that a member has the promised length, and that an error of the writer stays one.
func TestCopyPadded(t *testing.T) {
	for _, c := range []struct {
		file   io.Reader
		want   string
		padded bool
	}{
		{strings.NewReader("abcd"), "abcd", false},
		{strings.NewReader("abcdef"), "abcd", false},
		{strings.NewReader("ab"), "ab\x00\x00", true},
		{io.MultiReader(strings.NewReader("a"), iotest.ErrReader(errors.New("disk"))), "a\x00\x00\x00", true},
	} {
		var b strings.Builder
		padded, err := CopyPadded(&b, c.file, 4)
		if b.String() != c.want || padded != c.padded || err != nil {
			t.Errorf("%q, %v, %v; want %q", b.String(), padded, err, c.want)
		}
	}
	r, w := io.Pipe()
	r.Close()
	if padded, err := CopyPadded(w, strings.NewReader("ab"), 4); padded || err != io.ErrClosedPipe {
		t.Errorf("a closed writer: %v, %v", padded, err)
	}
}
