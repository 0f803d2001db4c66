package output

import (
	"math"
	"strings"
	"unicode/utf8"

	"berth/proto"
)

// Chunks are kept whole, so an output keeps somewhat more than its limit. A result, and a reader who comes after the
// end, gets exactly the limit: the first half and the last. No cut divides a character.

// A cut is what a late reader does not get of a stream: the bytes from the end of the head to the beginning of the
// tail.
type cut struct{ head, tail int64 }

// noCut is the cut of a stream that a reader gets as it is kept.
var noCut = cut{head: math.MaxInt64}

// limited makes c a late reader. Called with mu held.
func (o *Output) limited(c *Cursor) {
	for i := range o.streams {
		c.cuts[i] = o.cut(&o.streams[i])
	}
}

// cut returns the cut of a stream. Called with mu held.
func (o *Output) cut(st *streamOutput) cut {
	if st.total <= o.limit {
		return noCut
	}
	resume := st.total // where the output goes on after a gap
	if list := st.tail.chunks; len(list) > 0 {
		resume = list[0].off
	}
	if resume == st.head.size {
		resume = 0 // there is no gap
	}
	head := min(o.limit/2, st.head.size)
	head -= int64(Incomplete(st.bytes(head-utf8.UTFMax, head)))
	return cut{head, st.forward(max(resume, st.total-(o.limit-head)))}
}

// forward returns the first offset from at on where a character begins. In bytes that are no text it returns at.
func (st *streamOutput) forward(at int64) int64 {
	rest := st.bytes(at, at+utf8.UTFMax)
	for n, c := range rest {
		if utf8.RuneStart(c) {
			return at + int64(n)
		}
	}
	if len(rest) < utf8.UTFMax {
		return at + int64(len(rest)) // the last character
	}
	return at
}

// bytes returns what is kept of the few bytes between two offsets.
func (st *streamOutput) bytes(from, to int64) (b []byte) {
	for _, list := range [][]*chunk{st.head.chunks, st.tail.chunks} {
		for _, c := range list {
			end := c.off + int64(len(c.data))
			if c.off < to && end > from {
				b = append(b, c.data[max(from-c.off, 0):min(to, end)-c.off]...)
			}
		}
	}
	return b
}

// Incomplete returns the length of the unfinished character at the end of b, 0 to 3.
func Incomplete(b []byte) int {
	for n := 1; n <= min(len(b), utf8.UTFMax-1); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// Text returns the head and the tail of a stream, at most the limit together, and the number of bytes left out
// between them.
func (o *Output) Text(s proto.Stream) (head, tail []byte, dropped int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := Cursor{Stdout: math.MaxInt64, Stderr: math.MaxInt64}
	*c.of(s) = 0
	o.limited(&c)
	for {
		_, p, ok := o.take(&c, nil, math.MaxInt, false)
		switch {
		case !ok:
			return head, tail, dropped
		case p.Until > 0:
			dropped += p.Until - p.Offset
		case dropped == 0:
			head = append(head, p.Data...)
		default:
			tail = append(tail, p.Data...)
		}
	}
}

// Result returns the text of a stream as valid UTF-8, at most the limit and a mark where output was left out.
func (o *Output) Result(s proto.Stream) (text string, truncated bool) {
	head, tail, dropped := o.Text(s)
	if dropped == 0 {
		if text = validText(head); int64(len(text)) <= o.limit {
			return text, false
		}
		head, tail = head[:firstBytes(head, o.limit/2)], head[firstBytes(head, o.limit/2):]
	}
	start, end := validText(head), validText(tail)
	if int64(len(start)+len(end)) > o.limit { // bytes that are no text become longer
		n := firstBytes(head, o.limit/2)
		dropped, head = dropped+int64(len(head)-n), head[:n]
		start = validText(head)
		n = lastBytes(tail, o.limit-int64(len(start)))
		dropped, tail = dropped+int64(len(tail)-n), tail[len(tail)-n:]
		end = validText(tail)
	}
	return start + proto.OutputTruncated(dropped) + end, true
}

// firstBytes returns how many bytes from the beginning of b are at most most bytes of valid text.
func firstBytes(b []byte, most int64) (n int) {
	return fitting(b, most, utf8.DecodeRune, func(n int) []byte { return b[n:] })
}

// lastBytes is firstBytes from the end of b.
func lastBytes(b []byte, most int64) (n int) {
	return fitting(b, most, utf8.DecodeLastRune, func(n int) []byte { return b[:len(b)-n] })
}

// fitting counts the bytes of the next characters of rest that are at most most bytes as valid text, which has one
// replacement character for each run of invalid bytes.
func fitting(b []byte, most int64, decode func([]byte) (rune, int), rest func(n int) []byte) (n int) {
	bad := false
	for n < len(b) {
		r, width := decode(rest(n))
		cost := width
		if invalid := r == utf8.RuneError && width == 1; invalid {
			if cost = utf8.RuneLen(utf8.RuneError); bad {
				cost = 0
			}
			bad = true
		} else {
			bad = false
		}
		if most -= int64(cost); most < 0 {
			break
		}
		n += width
	}
	return n
}

// validText returns b as valid UTF-8.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
