package cell

import (
	"bytes"
	"fmt"
	"testing"
)

// A log is a listener that stores what it receives.
type log struct {
	out []byte
	all []string
}

func (l *log) printed(b []byte) { l.out = append(l.out, b...) }

func (l *log) reported(kind byte, data []byte) { l.all = append(l.all, string(kind)+string(data)) }

// However a stream comes in pieces, the printed and the reported bytes are the same, and none are lost.
func FuzzScanner(f *testing.F) {
	const nonce = "0123456789abcdef0123456789abcdef"
	mark := "\x1e" + nonce
	for _, seed := range []string{
		"plain", "a" + mark + " r 5\nvalue" + mark + " d 0\n" + "b", mark + " z 0\n", mark + " d 99999\nx",
		mark + " d -1\n", mark[:9] + mark + " d 2\nok", mark + " d 3\nab", mark + "\n", "\x1e\x1e" + mark + " d 1",
	} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(7))
	}
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		var whole, pieces log
		s := newScanner(nonce)
		s.feed(bytes.Clone(data), &whole)
		s.flush(&whole)
		s = newScanner(nonce)
		for off := 0; off < len(data); off += int(step) + 1 {
			s.feed(bytes.Clone(data[off:min(len(data), off+int(step)+1)]), &pieces)
			if len(s.held) > len(mark)+maxHeader+maxPiece {
				t.Fatalf("%d bytes are held", len(s.held))
			}
		}
		s.flush(&pieces)
		if fmt.Sprint(whole) != fmt.Sprint(pieces) {
			t.Fatalf("at once %q, in pieces %q", whole, pieces)
		}
		if len(whole.all) == 0 && !bytes.Equal(whole.out, data) {
			t.Fatalf("%q was printed as %q", data, whole.out)
		}
	})
}
