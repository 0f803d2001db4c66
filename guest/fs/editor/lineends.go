package editor

import "bytes"

// Models send the line ends that a view shows, which are line feeds. A file may have carriage returns before them. Its
// line ends then count as line feeds in a search, and stay in what is written.

var lf, crlf = []byte("\n"), []byte("\r\n")

// bom is a mark at the beginning of files that Windows programs write. It is not a part of the first line.
var bom = []byte("\ufeff")

// A place is where old_str occurs in a text.
type place struct {
	from, to int
	loose    bool // with other line ends than old_str has
}

// find returns the first place of old in text, as it is or else with any line ends, the number of such places, and
// their lines.
func find(text, old []byte) (p place, lines string, n int) {
	if lines, n = matches(text, old); n > 0 {
		p.from = bytes.Index(text, old)
		p.to = p.from + len(old)
		if old[0] == '\n' && p.from > 0 && text[p.from-1] == '\r' {
			p.from-- // a line end is replaced as a whole
		}
		return p, lines, n
	}
	plain, plainOld := withLF(text), withLF(old)
	if lines, n = matches(plain, plainOld); n > 0 {
		at := bytes.Index(plain, plainOld)
		p = place{original(text, at), original(text, at+len(plainOld)), true}
	}
	return p, lines, n
}

// original returns the offset in text of an offset in withLF(text). It is never within a line end.
func original(text []byte, plain int) (at int) {
	for ; plain > 0; plain-- {
		if bytes.HasPrefix(text[at:], crlf) {
			at++
		}
		at++
	}
	return at
}

// withLF returns text with line feeds alone as line ends.
func withLF(text []byte) []byte { return bytes.ReplaceAll(text, crlf, lf) }

// withCRLF returns text with a carriage return before each line feed.
func withCRLF(text []byte) []byte { return bytes.ReplaceAll(withLF(text), lf, crlf) }

// hasCRLF reports whether the line at an offset of a text ends with CRLF. A line without an end is as the one before.
func hasCRLF(text []byte, at int) bool {
	end := bytes.IndexByte(text[at:], '\n')
	if end += at; end < at {
		end = bytes.LastIndexByte(text, '\n')
	}
	return end > 0 && text[end-1] == '\r'
}

// fitted returns what replaces old at p, with the line ends of that place.
func (p place) fitted(text, old, replacement []byte) []byte {
	explicit := bytes.Contains(old, crlf) // the caller knows the line ends
	change := explicit && bytes.Equal(withLF(old), withLF(replacement))
	switch there := hasCRLF(text, p.from); {
	case there && (p.loose || !change):
		return withCRLF(replacement)
	case !there && p.loose && explicit:
		return withLF(replacement)
	}
	return replacement
}
