package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"berth/proto"
)

// The end of each line: hashMember, the hash, lineEnd.
const (
	hashMember = `,"hash":"`
	hexDigits  = 2 * sha256.Size
	lineEnd    = "\"}\n"
	tailBytes  = len(hashMember) + hexDigits + len(lineEnd)
)

// genesis stands for the previous hash in the first entry.
var genesis = strings.Repeat("0", hexDigits)

// Bounds of values that callers choose, in bytes. They keep a line below maxLine with every byte escaped.
const (
	maxWord = 1 << 10
	maxLine = 1 << 20
)

// encode writes an entry whose Seq and Prev are set as a line, and returns the line's hash.
func encode(e proto.AuditEntry) (line []byte, hash string, err error) {
	e.Hash = ""
	e.Item, e.Note = within(e.Item), within(e.Note)
	body, err := json.Marshal(e)
	if err != nil {
		return nil, "", fmt.Errorf("encoding an audit entry: %w", err)
	}
	body = bytes.TrimSuffix(body, []byte(hashMember+`"}`)) // Hash is the last member and empty
	body = ascii(body)
	sum := sha256.Sum256(body)
	hash = hex.EncodeToString(sum[:])
	return append(body, hashMember+hash+lineEnd...), hash, nil
}

// within cuts a value that a caller chose.
func within(s string) string {
	if len(s) <= maxWord {
		return s
	}
	return strings.ToValidUTF8(s[:maxWord], "") + "…"
}

// ascii escapes everything except printable ASCII. No line can then control the terminal that shows it, and no
// reader's version of Unicode changes the hashed bytes.
func ascii(b []byte) []byte {
	const rubout = 0x7f
	i := 0
	for i < len(b) && b[i] < rubout {
		i++
	}
	if i == len(b) { // the usual case
		return b
	}
	out := append(make([]byte, 0, len(b)+64), b[:i]...)
	for _, r := range string(b[i:]) {
		switch hi, lo := utf16.EncodeRune(r); {
		case r < rubout:
			out = append(out, byte(r))
		case hi != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// A flaw is an error in one line by itself.
type flaw string

func (f flaw) Error() string { return string(f) }

// decode reads a line and checks its hash.
func decode(line []byte) (e proto.AuditEntry, err error) {
	n := len(line) - tailBytes
	if n < 1 || !bytes.HasPrefix(line[n:], []byte(hashMember)) || !bytes.HasSuffix(line, []byte(lineEnd)) {
		return e, flaw("it is no entry: it does not end in a hash")
	}
	sum := sha256.Sum256(line[:n])
	claimed := line[n+len(hashMember) : n+len(hashMember)+hexDigits]
	if hex.EncodeToString(sum[:]) != string(claimed) {
		err = flaw("it was edited: its hash is not that of its text")
	}
	if json.Unmarshal(line, &e) != nil {
		return e, flaw("it was edited: it is no JSON object any more")
	}
	return e, err
}
