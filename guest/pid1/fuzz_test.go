package pid1

import (
	"testing"

	"berth/guest/wire"
)

// Requests of any form are refused or answered, by a guest that works on an empty directory as nobody in particular.
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
