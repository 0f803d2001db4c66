package pid1

import (
	"testing"

	"berth/guest/wire"
)

// FuzzRequest checks that the guest answers or refuses every request. The guest works as an unprivileged user in an
// empty directory.
func FuzzRequest(f *testing.F) {
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
		if req.Command != nil {
			_ = check(req.Command)
		}
	})
}
