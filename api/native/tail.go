package native

import "bytes"

// maxTail bounds the lines that a request can ask for, and tailBytes what is held of them, in bytes.
const (
	maxTail   = 10_000
	tailBytes = 1 << 20
)

// A lineTail keeps the last lines of what is added to it.
type lineTail struct {
	lines int
	kept  []byte
}

func (t *lineTail) add(data []byte) {
	t.kept = append(t.kept, data...)
	if len(t.kept) > 2*tailBytes {
		t.kept = bytes.Clone(t.last())
	}
}

// last returns the last lines. A line without an end counts as one.
func (t *lineTail) last() []byte {
	from := max(0, len(t.kept)-tailBytes)
	at := len(bytes.TrimSuffix(t.kept, []byte("\n")))
	for range t.lines {
		if at = bytes.LastIndexByte(t.kept[:at], '\n'); at < from {
			return t.kept[from:]
		}
	}
	return t.kept[at+1:]
}
