package guest

import (
	"bytes"
	"strings"

	"berth/proto"
)

// hunkContext is how many unchanged lines stand around a change, as in diff -U3.
const hunkContext = 3

// maxTable bounds the table that finds unchanged lines within a change. A change too large
// for it shows all its old lines and then all its new ones.
const maxTable = 1 << 20

// noNewline is what diff says of a last line without an end.
const noNewline = `\ No newline at end of file`

// hunk describes how old became new as one unified-diff hunk.
//
// Equal lines at the start of both are taken off first, then those at the end. What remains
// begins and ends with a line that differs, so it spans what diff finds: its changes cannot begin
// later or end earlier, and of the places where an inserted line could be shown among equal ones diff too
// takes the last. Where the changes are far apart diff makes several hunks; here it is one with all
// that lies between, since a consumer gets one set of numbers.
func hunk(before, after []byte) proto.EditorReplace {
	a, b := splitLines(before), splitLines(after)
	head := 0
	for head < min(len(a), len(b)) && bytes.Equal(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && bytes.Equal(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	r := proto.EditorReplace{Type: proto.TypeEditorStrReplace, Lines: []string{}}
	if head == len(a) && head == len(b) {
		return numbered(r, 0, 0, 0, 0) // nothing changed, and diff prints nothing
	}
	first, last := max(0, head-hunkContext), min(tail, hunkContext)
	for _, line := range a[first:head] {
		r.Lines = addLine(r.Lines, ' ', line)
	}
	r.Lines = append(r.Lines, changes(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, line := range a[len(a)-tail : len(a)-tail+last] {
		r.Lines = addLine(r.Lines, ' ', line)
	}
	return numbered(r, first, len(a)-tail+last-first, first, len(b)-tail+last-first)
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

// addLine adds a line of a hunk, and diff's remark where it lacks its end.
func addLine(lines []string, mark byte, line []byte) []string {
	text, whole := bytes.CutSuffix(line, []byte{'\n'})
	lines = append(lines, string(mark)+strings.ToValidUTF8(string(text), "\uFFFD"))
	if !whole {
		lines = append(lines, noNewline)
	}
	return lines
}

// changes shows how the lines a became b, with as many unchanged as there can be. Lines
// that are equal where both stand are always taken as unchanged, which puts a change as late among
// equal lines as it can be, like diff does.
func changes(a, b [][]byte) []string {
	kept := newTable(a, b)
	var lines []string
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case kept != nil && i < len(a) && j < len(b) && bytes.Equal(a[i], b[j]):
			lines = addLine(lines, ' ', a[i])
			i++
			j++
		case i < len(a) && (j == len(b) || kept == nil || kept.at(i+1, j) >= kept.at(i, j+1)):
			lines = addLine(lines, '-', a[i])
			i++
		default:
			lines = addLine(lines, '+', b[j])
			j++
		}
	}
	return ordered(lines)
}

// ordered puts the removed lines of each change before the added ones. A remark stays with its line.
func ordered(lines []string) []string {
	out := make([]string, 0, len(lines))
	var added []string
	for i, line := range lines {
		mark := line[0]
		if mark == '\\' {
			mark = lines[i-1][0]
		}
		switch mark {
		case '+':
			added = append(added, line)
		case ' ':
			out, added = append(out, added...), nil
			fallthrough
		default:
			out = append(out, line)
		}
	}
	return append(out, added...)
}

// A table holds the length of the longest common subsequence of a[i:] and b[j:].
type table struct {
	width int
	cells []uint16
}

// newTable fills a table, or returns nil where it would be too large.
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
