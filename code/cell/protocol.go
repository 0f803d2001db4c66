package cell

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// A driver receives a line and the code:
//
//	NONCE NUMBER MODE BYTES\n CODE
//	NONCE NUMBER MODE BYTES COUNT\n SETTINGS CODE
//
// NUMBER counts the cells of an interpreter from 1. MODE is "once" or "cell". COUNT settings, each NAME BYTES\n VALUE,
// hold for this cell: environment variables, and under the name "/" the working directory. The driver answers among
// what the code prints, in records of one write each, which the kernel keeps whole in a pipe:
//
//	RS NONCE ' ' KIND ' ' BYTES '\n' DATA
//
// The kinds follow. Between two records that begin something, names and data alternate. Data that is longer than a
// record comes in several.
const (
	kindResult = 'r' // begins a result; DATA is "value", "display" or "figure"
	kindError  = 'e' // begins the error
	// names the data that follow: a media type, or of an error "name", "message" or "traceback". An empty name ends a
	// result before the next record that begins something.
	kindName = 'm'
	kindData = 'd'
	kindEnd  = 'z' // ends the cell, on each of the two streams
)

// resultValue is the DATA of the main result: the value of the last expression.
const resultValue = "value"

// The modes.
const (
	ModeOnce = "once" // the code is a program: the interpreter ends with it
	ModeCell = "cell"
)

// recordSeparator begins a record. Most output has none, so that finding records costs next to nothing.
const recordSeparator = 0x1e

// maxPiece is the limit for DATA: with its header, it fits into the 4,096 bytes that a pipe takes as one piece.
// maxHeader is the longest text between nonce and DATA.
const (
	maxPiece  = 4000
	maxHeader = len(" k 4000\n")
)

// settingCwd is the name of the setting that is no variable: the working directory.
const settingCwd = "/"

// Request encodes the cell for a driver, as the given one of its interpreter's cells.
func (c *Cell) Request(number int, mode, code string) []byte {
	return append(fmt.Appendf(nil, "%s %d %s %d\n", c.nonce, number, mode, len(code)), code...)
}

// RequestWith is Request for a cell that has an environment and a working directory of its own; cwd may be "".
func (c *Cell) RequestWith(number int, code string, env map[string]string, cwd string) []byte {
	settings := maps.Clone(env)
	if cwd != "" {
		if settings == nil {
			settings = map[string]string{}
		}
		settings[settingCwd] = cwd
	}
	if len(settings) == 0 {
		return c.Request(number, ModeCell, code)
	}
	b := fmt.Appendf(nil, "%s %d %s %d %d\n", c.nonce, number, ModeCell, len(code), len(settings))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		b = append(fmt.Appendf(b, "%s %d\n", name, len(settings[name])), settings[name]...)
	}
	return append(b, code...)
}

// A listener receives the contents of one stream. Its arguments are valid until it returns.
type listener interface {
	printed(b []byte)
	reported(kind byte, data []byte)
}

// A scanner finds records in one stream.
type scanner struct {
	mark []byte // how a record begins
	held []byte // what may be the beginning of a record
}

func newScanner(nonce string) *scanner {
	return &scanner{mark: append([]byte{recordSeparator}, nonce...)}
}

// feed takes the next bytes of the stream.
func (s *scanner) feed(b []byte, to listener) {
	if len(s.held) > 0 {
		b = append(s.held, b...)
		s.held = nil
	}
	for len(b) > 0 {
		at := s.start(b)
		if at > 0 {
			to.printed(b[:at])
			b = b[at:]
			continue
		}
		n, whole := s.record(b, to)
		switch {
		case n == 0: // the rest of the record is to come
			s.held = slices.Clone(b)
			return
		case !whole: // it only looked like a record
			to.printed(b[:n])
		}
		b = b[n:]
	}
}

// flush gives the bytes of an incomplete record to the listener as output, at the end of the stream.
func (s *scanner) flush(to listener) {
	if len(s.held) > 0 {
		to.printed(s.held)
		s.held = nil
	}
}

// start returns where the first record may begin, or len(b).
func (s *scanner) start(b []byte) int {
	for at := 0; at < len(b); at++ {
		i := bytes.IndexByte(b[at:], recordSeparator)
		if i < 0 {
			break
		}
		at += i
		if rest := b[at:]; bytes.HasPrefix(rest, s.mark) || bytes.HasPrefix(s.mark, rest) {
			return at
		}
	}
	return len(b)
}

// record takes the record that b may begin with. n is how many bytes of b were consumed; 0: more bytes are needed.
func (s *scanner) record(b []byte, to listener) (n int, whole bool) {
	if len(b) < len(s.mark) {
		return 0, false
	}
	head := b[len(s.mark):]
	end := bytes.IndexByte(head, '\n')
	if end < 0 && len(head) < maxHeader {
		return 0, false
	}
	kind, size, ok := parseHeader(head, end)
	if !ok {
		return len(s.mark), false
	}
	begin := len(s.mark) + end + 1
	if len(b) < begin+size {
		return 0, false
	}
	to.reported(kind, b[begin:begin+size])
	return begin + size, true
}

// parseHeader reads " KIND BYTES\n", of which end is the last byte.
func parseHeader(b []byte, end int) (kind byte, size int, ok bool) {
	if end < len(" k 0") || end >= maxHeader || b[0] != ' ' || b[2] != ' ' {
		return 0, 0, false
	}
	for _, c := range b[3:end] {
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		size = size*10 + int(c-'0')
	}
	return b[1], size, size <= maxPiece
}
