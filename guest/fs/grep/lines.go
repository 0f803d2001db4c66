package grep

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"berth/proto"
)

// lines is a file that is being searched. Its data come in parts of whole lines.
type lines struct {
	s     *Search
	fi    proto.FileInfo
	line  int64    // number of the next line
	off   int64    // bytes of that line that were in an earlier piece
	tail  []untold // the lines before it, for the context of a match
	after int      // lines that are still told after the last match
	hits  int      // lines with a match
	over  bool     // nothing more is wanted
}

// aliveEach is after how many lines a search asks whether it shall go on: an expression may take long for each.
const aliveEach = 256

// An untold line is one that may become context.
type untold struct {
	text []byte
	line int64
}

// search looks through the whole lines of data, and through all of it at the end of a file. It returns how much that
// was.
func (l *lines) search(data []byte, last bool) int {
	end := len(data)
	if !last {
		end = bytes.LastIndexByte(data, '\n') + 1
	}
	piece := end == 0 && len(data) == chunk
	if piece {
		end = len(data)
	}
	literal := l.s.pat.literal
	for pos, n := 0, 1; pos < end && !l.over; n++ {
		if n%aliveEach == 0 && !l.s.alive() {
			l.s.done, l.s.sum.Truncated, l.over = true, true, true
			break
		}
		if len(literal) > 0 { // go to the line that has it
			at := bytes.Index(data[pos:end], literal)
			start := end
			if at >= 0 {
				start = pos + bytes.LastIndexByte(data[pos:pos+at], '\n') + 1
			}
			l.pass(data[pos:start])
			if pos = start; pos == end {
				break
			}
		}
		next := end
		if n := bytes.IndexByte(data[pos:end], '\n'); n >= 0 {
			next = pos + n + 1
		}
		line := trimEnd(data[pos:next])
		if from, to, ok := l.s.pat.find(line); ok {
			l.hit(line, from, to)
			l.count(data[pos:next])
		} else {
			l.pass(data[pos:next])
		}
		pos = next
	}
	if piece {
		l.off += int64(end)
	}
	for i := range l.tail { // the buffer is used again
		l.tail[i].text = bytes.Clone(l.tail[i].text[:min(len(l.tail[i].text), maxText+1)])
	}
	return end
}

func trimEnd(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'})
}

// pass goes past lines without a match. It tells those that follow a match.
func (l *lines) pass(data []byte) {
	for l.after > 0 && len(data) > 0 && !l.over {
		line, rest := cutLine(data)
		l.after--
		l.tell(proto.GrepEvent{Type: proto.GrepContext, Line: l.line}, trimEnd(line), 0)
		l.count(line)
		data = rest
	}
	if before := l.s.opt.LinesBefore; before > 0 {
		first := len(data)
		for n := 0; n < before && first > 0; n++ {
			first = bytes.LastIndexByte(data[:first-1], '\n') + 1
		}
		l.count(data[:first])
		for data = data[first:]; len(data) > 0; {
			line, rest := cutLine(data)
			if l.tail = append(l.tail, untold{trimEnd(line), l.line}); len(l.tail) > before {
				l.tail = l.tail[1:]
			}
			l.count(line)
			data = rest
		}
		return
	}
	l.count(data)
}

// cutLine splits off the first line with its end.
func cutLine(data []byte) (line, rest []byte) {
	n := bytes.IndexByte(data, '\n') + 1
	if n == 0 {
		n = len(data)
	}
	return data[:n], data[n:]
}

// count counts the lines that end in data.
func (l *lines) count(data []byte) {
	if n := bytes.Count(data, []byte{'\n'}); n > 0 {
		l.line += int64(n)
		l.off = 0
	}
}

// hit tells a line with a match, and the lines before it.
func (l *lines) hit(line []byte, from, to int) {
	if l.hits++; l.hits == 1 {
		l.s.sum.Files++
	}
	for _, u := range l.tail {
		if u.line != l.line { // not an earlier piece of this line
			l.tell(proto.GrepEvent{Type: proto.GrepContext, Line: u.line}, u.text, 0)
		}
	}
	l.tail, l.after = nil, l.s.opt.LinesAfter
	l.tell(proto.GrepEvent{Type: proto.GrepMatch, Line: l.line, Column: l.off + int64(from) + 1, Length: to - from},
		line, from)
	l.s.sum.Matches++
	if l.s.sum.Matches >= l.s.opt.MaxMatches {
		l.s.done, l.s.sum.Truncated, l.over = true, true, true
	}
	l.over = l.over || l.hits == l.s.opt.MaxPerFile
}

// tell tells a line, or the part of it around a match at from.
func (l *lines) tell(ev proto.GrepEvent, line []byte, from int) {
	start, end := 0, len(line)
	if end > maxText {
		start = max(0, min(from-beforeHit, end-maxText))
		for start > 0 && start < end && !utf8.RuneStart(line[start]) {
			start++
		}
		end = min(end, start+maxText)
		for end < len(line) && end > start && !utf8.RuneStart(line[end]) {
			end--
		}
		ev.Cut = true
	}
	if start > 0 || ev.Type == proto.GrepMatch && l.off > 0 {
		ev.TextColumn = l.off + int64(start) + 1
	}
	ev.Path, ev.RawPath = l.fi.Path, l.fi.RawPath
	ev.Text = strings.ToValidUTF8(string(line[start:end]), "\uFFFD")
	if l.s.left -= 100 + len(ev.Path) + 2*len(ev.RawPath) + len(ev.Text); l.s.left < 0 {
		l.s.done, l.s.sum.Truncated, l.over = true, true, true
		return
	}
	l.s.tell(ev)
}
