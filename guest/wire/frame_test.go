package wire

import (
	"bytes"
	"testing"
)

func FuzzFrames(f *testing.F) {
	f.Add(append([]byte{'Q', 0, 0, 0, 13}, `{"op":"stat"}`...))
	f.Add([]byte{'c', 0, 0, 0, 1, 'x', 'Q', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var buf []byte
		total := 0
		for {
			_, body, err := readMessage(func() (FrameKind, []byte, error) {
				kind, body, err := ReadFrame(r, buf)
				buf = body
				return kind, body, err
			}, 4096)
			if err != nil {
				break
			}
			if len(body) > 4096 {
				t.Fatalf("%d bytes of a message", len(body))
			}
			total += len(body) + HeaderBytes
			var req Request
			_ = Decode(body, &req)
			_, _, _ = DecodeNumbers(body, 3)
		}
		if total > len(b) {
			t.Fatalf("%d bytes out of %d", total, len(b))
		}
	})
}
