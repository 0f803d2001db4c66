package fs

import (
	"path/filepath"
	"strings"
	"testing"

	"berth/guest/user"
	"berth/guest/wire"
)

// FuzzPath checks that an accepted path is absolute, clean and without NUL bytes.
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

// FuzzFileRequest checks that the limit of a list stays in its bounds for every request that can be decoded.
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
	})
}
