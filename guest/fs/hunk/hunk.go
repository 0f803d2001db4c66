// Package hunk describes the change from one text to another as one hunk of a unified diff, with the numbers that
// diff -U3 gives. Package guest/fs/editor uses it. It reads and writes no files.
package hunk

import (
	"bytes"
	"strings"

	"berth/proto"
)

// hunkContext is the number of unchanged lines around a change, as in diff -U3.
const hunkContext = 3

// maxTable bounds the table that finds unchanged lines within a change. A larger change shows all its old lines and
// then all its new ones.
const maxTable = 1 << 20

// noNewline is diff's remark on a last line without a newline.
const noNewline = `\ No newline at end of file`

// maxHunkLines bounds the lines that a hunk shows, in lines of both sides. A larger change is reported by its numbers
// alone. A line takes far more memory here than its bytes, which may be two.
const maxHunkLines = 100_000

// Between describes the change from before to after as one unified-diff hunk, with the numbers of diff -U3.
//
// Between first removes equal lines at both ends, all but a few. In the rest it keeps as many lines unchanged as
// possible. It moves each run of changed lines among equal ones as diff does. If the changes are far apart, diff
// makes several hunks. Between makes one, from the first change to the last, since a consumer gets one set of numbers.
func Between(before, after []byte) proto.EditorReplace {
	r := proto.EditorReplace{Type: proto.TypeEditorStrReplace, Lines: []string{}}
	if bytes.Equal(before, after) {
		return numbered(r, 0, 0, 0, 0) // nothing changed, and diff prints nothing
	}
	// The equal ends are found as bytes before lines are split, since a file may have millions of lines. The function
	// keeps twice as many lines as it shows: changes are moved among them.
	head, tail := equalBytes(before, after, 2*hunkContext)
	above := bytes.Count(before[:head], []byte{'\n'})
	before, after = before[head:len(before)-tail], after[head:len(after)-tail]
	if n, m := CountLines(before), CountLines(after); n+m > maxHunkLines {
		return numbered(r, above, n, above, m)
	}
	a, b := splitLines(before), splitLines(after)
	equalHead, equalTail := equalEnds(a, b)
	// Like diff, keep as many lines at both ends as are shown, to move changes among them.
	from, to := max(0, equalHead-hunkContext), max(0, equalTail-hunkContext)
	left, right := side{lines: a[from : len(a)-to]}, side{lines: b[from : len(b)-to]}
	flag(&left, &right, equalHead-from, equalTail-to)
	shiftRuns(&left, &right)
	shiftRuns(&right, &left)
	first := min(left.first(), right.first())
	last := min(left.last(), right.last()) // equal lines after the last change
	lead := from + first
	start := max(0, lead-hunkContext)
	end := min(to+last, hunkContext)
	for _, line := range a[start:lead] {
		r.Lines = addLine(r.Lines, ' ', line)
	}
	r.Lines = append(r.Lines, changes(&left, &right, first, last)...)
	for _, line := range a[len(a)-to-last : len(a)-to-last+end] {
		r.Lines = addLine(r.Lines, ' ', line)
	}
	return numbered(r, above+start, len(a)-to-last+end-start, above+start, len(b)-to-last+end-start)
}

// equalBytes returns how many bytes of whole equal lines are at the start of both texts, and then at the end, without
// the keep lines next to the difference.
func equalBytes(a, b []byte, keep int) (head, tail int) {
	least := min(len(a), len(b))
	for head < least && a[head] == b[head] {
		head++
	}
	head = bytes.LastIndexByte(a[:head], '\n') + 1
	for least -= head; tail < least && a[len(a)-1-tail] == b[len(b)-1-tail]; {
		tail++
	}
	// The equal part at the end begins in the middle of a line, unless a line begins there in both texts.
	if !startsLine(a, len(a)-tail) || !startsLine(b, len(b)-tail) {
		part := bytes.IndexByte(a[len(a)-tail:], '\n') + 1
		if part == 0 {
			part = tail
		}
		tail -= part
	}
	for range keep {
		if head > 0 {
			head = bytes.LastIndexByte(a[:head-1], '\n') + 1
		}
		tail -= LineStart(a[len(a)-tail:], 1)
	}
	return head, tail
}

// startsLine reports whether a line begins at byte i.
func startsLine(text []byte, i int) bool { return i == 0 || text[i-1] == '\n' }

// CountLines returns how many lines splitLines would make.
func CountLines(text []byte) int {
	n := bytes.Count(text, []byte{'\n'})
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}

// LineStart returns where the line after the first n lines begins, or the end of the text.
func LineStart(text []byte, n int) (at int) {
	for ; n > 0 && at < len(text); n-- {
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			return len(text)
		}
		at += end + 1
	}
	return at
}

// equalEnds counts the equal lines at the start of both, and then those at the end.
func equalEnds(a, b [][]byte) (head, tail int) {
	least := min(len(a), len(b))
	for head < least && bytes.Equal(a[head], b[head]) {
		head++
	}
	for tail < least-head && bytes.Equal(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	return head, tail
}

// numbered sets a hunk's numbers. An empty range starts at the line before it.
func numbered(r proto.EditorReplace, oldFirst, oldLines, newFirst, newLines int) proto.EditorReplace {
	if oldLines > 0 {
		oldFirst++
	}
	if newLines > 0 {
		newFirst++
	}
	r.OldStart, r.OldLines, r.NewStart, r.NewLines = &oldFirst, &oldLines, &newFirst, &newLines
	return r
}

// splitLines cuts text after each newline; only the last line may lack it.
func splitLines(text []byte) [][]byte {
	lines := bytes.SplitAfter(text, []byte{'\n'})
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// addLine adds a line to a hunk, and diff's remark if the line has no newline.
func addLine(lines []string, mark byte, line []byte) []string {
	text, whole := bytes.CutSuffix(line, []byte{'\n'})
	lines = append(lines, string(mark)+strings.ToValidUTF8(string(text), "\uFFFD"))
	if !whole {
		lines = append(lines, noNewline)
	}
	return lines
}

// side is one of the two texts, with a flag for each line that the other text lacks.
type side struct {
	lines   [][]byte
	changed []bool
}

// is reports whether line i is changed. It returns false beyond the ends.
func (s *side) is(i int) bool { return i >= 0 && i < len(s.changed) && s.changed[i] }

// first returns how many lines precede the first change; last returns how many follow the last one.
func (s *side) first() int {
	n := 0
	for n < len(s.changed) && !s.changed[n] {
		n++
	}
	return n
}

func (s *side) last() int {
	n := 0
	for n < len(s.changed) && !s.changed[len(s.changed)-1-n] {
		n++
	}
	return n
}

// flag marks the lines that are not in the longest common subsequence. The first head lines and the last tail lines
// are equal. If the rest is too large to search, all of it counts as changed.
func flag(a, b *side, head, tail int) {
	a.changed, b.changed = make([]bool, len(a.lines)), make([]bool, len(b.lines))
	x, y := a.lines[head:len(a.lines)-tail], b.lines[head:len(b.lines)-tail]
	kept := newTable(x, y)
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case kept != nil && i < len(x) && j < len(y) && bytes.Equal(x[i], y[j]):
			i++
			j++
		case i < len(x) && (j == len(y) || kept == nil || kept.at(i+1, j) >= kept.at(i, j+1)):
			a.changed[head+i] = true
			i++
		default:
			b.changed[head+j] = true
			j++
		}
	}
}

// shiftRuns moves the runs of changed lines of s to where diff shows them. A run may move past an equal line at its
// other end. It moves up as long as it meets another run, and merges with that run. Then it moves down as far as
// possible. If it passed a run of the other side, it moves back up to that position.
func shiftRuns(s, other *side) {
	i, j := 0, 0 // j is the position on the other side that corresponds to i
	for {
		for i < len(s.lines) && !s.changed[i] {
			for other.is(j) {
				j++
			}
			i++
			j++
		}
		if i == len(s.lines) {
			return
		}
		r := run{s: s, other: other, start: i, j: j}
		for s.is(i) {
			i++
		}
		r.end = i
		for other.is(r.j) {
			r.j++
		}
		i, j = r.move()
	}
}

// run is a range of changed lines from start to before end. j is the line of the other side that follows the
// corresponding range.
type run struct {
	s, other      *side
	start, end, j int
}

// move settles one run and returns where it ends on both sides.
func (r *run) move() (i, j int) {
	for {
		length := r.end - r.start
		for r.start > 0 && bytes.Equal(r.s.lines[r.start-1], r.s.lines[r.end-1]) {
			r.up()
			for r.s.is(r.start - 1) {
				r.start--
			}
		}
		beside := len(r.s.lines) // the run's end when it was last beside a run of the other side
		if r.other.is(r.j - 1) {
			beside = r.end
		}
		for r.end < len(r.s.lines) && bytes.Equal(r.s.lines[r.start], r.s.lines[r.end]) {
			if r.down() {
				beside = r.end
			}
		}
		if length != r.end-r.start {
			continue
		}
		for beside < r.end {
			r.up()
		}
		return r.end, r.j
	}
}

// up moves the run by one line.
func (r *run) up() {
	r.start--
	r.end--
	r.s.changed[r.start], r.s.changed[r.end] = true, false
	for r.j--; r.other.is(r.j); r.j-- {
	}
}

// down moves the run down by one line and merges it with a run that it meets. It reports whether the run is now
// beside a run of the other side.
func (r *run) down() (beside bool) {
	r.s.changed[r.start], r.s.changed[r.end] = false, true
	r.start++
	for r.end++; r.s.is(r.end); r.end++ {
	}
	for r.j++; r.other.is(r.j); r.j++ {
		beside = true
	}
	return beside
}

// changes returns the lines between the first and the last change.
func changes(a, b *side, first, last int) []string {
	var lines []string
	for i, j := first, first; i < len(a.lines)-last || j < len(b.lines)-last; {
		switch {
		case a.is(i):
			lines = addLine(lines, '-', a.lines[i])
			i++
		case b.is(j):
			lines = addLine(lines, '+', b.lines[j])
			j++
		default:
			lines = addLine(lines, ' ', a.lines[i])
			i++
			j++
		}
	}
	return lines
}

// table holds the length of the longest common subsequence of a[i:] and b[j:].
type table struct {
	width int
	cells []uint16
}

// newTable fills a table, or returns nil if the table would be too large.
func newTable(a, b [][]byte) *table {
	if (len(a)+1)*(len(b)+1) > maxTable || min(len(a), len(b)) > 1<<16-1 {
		return nil
	}
	t := &table{width: len(b) + 1, cells: make([]uint16, (len(a)+1)*(len(b)+1))}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			n := max(t.at(i+1, j), t.at(i, j+1))
			if bytes.Equal(a[i], b[j]) {
				n = t.at(i+1, j+1) + 1
			}
			t.cells[i*t.width+j] = n
		}
	}
	return t
}

func (t *table) at(i, j int) uint16 { return t.cells[i*t.width+j] }
