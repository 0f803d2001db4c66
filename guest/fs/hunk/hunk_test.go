package hunk

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"berth/proto"
)

// TestHunkEqualsDiff checks that random edits give the hunk of diff -U3. The texts have only six different lines, so
// that many lines are equal. Heuristics of diff give another result in about one of a thousand cases.
func TestHunkEqualsDiff(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	alphabet := []string{"a", "b", "c", "", "  x", "a\r"}
	ends := []string{"\n", "\n", ""}
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(alphabet[rng.Intn(len(alphabet))] + "\n")
		}
		return strings.TrimSuffix(b.String(), "\n") + ends[rng.Intn(3)]
	}
	several, differing, off, total := 0, 0, 0, 0
	for range 1500 {
		before := text(rng.Intn(14))
		lines := strings.SplitAfter(before, "\n")
		from := rng.Intn(len(lines))
		to := from + rng.Intn(len(lines)-from+1)
		after := strings.Join(lines[:from], "") + text(rng.Intn(5)) + strings.Join(lines[to:], "")
		if before == after {
			continue
		}
		total++
		h := Between([]byte(before), []byte(after))
		d := diffU3(t, before, after)
		switch {
		case d == nil:
			several++
		case d.numbers != numbersOf(h):
			off++
			t.Logf("%q -> %q: got %v, diff says %v", before, after, numbersOf(h), d.numbers)
		case d.lines != strings.Join(h.Lines, "\n"):
			differing++
		}
	}
	t.Logf("of %d edits diff made several hunks of %d, other numbers in %d, other lines in %d", total, several, off,
		differing)
	if several > total/10 || off > total/500 || differing > total/50 {
		t.Error("too many differ")
	}
}

// TestHunkOfDistinctLines checks that the hunk is exactly that of diff if all lines differ, as in most files.
func TestHunkOfDistinctLines(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	for range 500 {
		var lines []string
		for i := range 5 + rng.Intn(30) {
			lines = append(lines, fmt.Sprintf("line %d\n", i))
		}
		before := strings.Join(lines, "")
		at := rng.Intn(len(lines))
		for i := at; i < min(len(lines), at+6); i++ { // some of a block are changed, some are not
			switch rng.Intn(4) {
			case 0:
				lines[i] = fmt.Sprintf("new %d\n", i)
			case 1:
				lines[i] = ""
			case 2:
				lines[i] += "added\n"
			}
		}
		after := strings.Join(lines, "")
		if rng.Intn(3) == 0 {
			after = strings.TrimSuffix(after, "\n")
		}
		if before == after {
			continue
		}
		compareWithDiff(t, before, after, Between([]byte(before), []byte(after)))
	}
}

// TestHunkOfVeryManyLines checks that a change of too many lines is reported by its numbers alone.
func TestHunkOfVeryManyLines(t *testing.T) {
	r := Between([]byte("a\nb\nc\n"), []byte("a\n"+strings.Repeat("\n", maxHunkLines)+"c\n"))
	if len(r.Lines) != 0 || r.Lines == nil || *r.OldStart != 1 || *r.OldLines != 3 || *r.NewStart != 1 ||
		*r.NewLines != maxHunkLines+2 {
		t.Errorf("%d lines, -%d,%d +%d,%d", len(r.Lines), *r.OldStart, *r.OldLines, *r.NewStart, *r.NewLines)
	}
}

// FuzzHunk checks that the lines of a hunk match its numbers.
func FuzzHunk(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nx\nc"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		h := Between(a, b)
		old, fresh := 0, 0
		for _, line := range h.Lines {
			switch line[0] {
			case ' ':
				old++
				fresh++
			case '-':
				old++
			case '+':
				fresh++
			}
		}
		if old != *h.OldLines || fresh != *h.NewLines {
			t.Errorf("%q -> %q: %+v", a, b, h)
		}
	})
}

// compareWithDiff checks that a hunk equals that of diff.
func compareWithDiff(t *testing.T, before, after string, h proto.EditorReplace) {
	t.Helper()
	d := diffU3(t, before, after)
	if d != nil && (d.numbers != numbersOf(h) || d.lines != strings.Join(h.Lines, "\n")) {
		t.Errorf("%q -> %q: got %v %q, diff says %+v", before, after, numbersOf(h), h.Lines, *d)
	}
}

// TestHunkOfInsertions compares insertions at the ends and next to missing newlines.
func TestHunkOfInsertions(t *testing.T) {
	for _, c := range [][2]string{
		{"a\nb\n", "x\na\nb\n"}, {"a\nb\n", "a\nx\nb\n"}, {"a\nb\n", "a\nb\nx\n"}, {"a\nb\n", "a\nb\nx"},
		{"a\nb", "a\nb\nx\n"}, {"", "x\n"}, {"a\n", "a\n"},
	} {
		compareWithDiff(t, c[0], c[1], Between([]byte(c[0]), []byte(c[1])))
	}
}

// A diffHunk is the output of diff, if it is one hunk.
type diffHunk struct {
	numbers [4]int
	lines   string
}

// diffU3 runs diff. It returns nil if diff makes several hunks.
func diffU3(t *testing.T, before, after string) *diffHunk {
	t.Helper()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, []byte(before), 0o644))
	must(t, os.WriteFile(b, []byte(after), 0o644))
	out, _ := exec.Command("diff", "-U3", a, b).Output()
	if len(out) == 0 {
		return &diffHunk{}
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")[2:]
	if strings.Contains(strings.Join(lines[1:], "\n"), "\n@@ ") {
		return nil
	}
	m := hunkHeader.FindStringSubmatch(lines[0])
	if m == nil {
		t.Fatalf("what is this: %q", lines[0])
	}
	d := &diffHunk{lines: strings.Join(lines[1:], "\n")}
	for i := range d.numbers {
		d.numbers[i] = 1
		if m[i+1] != "" {
			d.numbers[i], _ = strconv.Atoi(m[i+1])
		}
	}
	return d
}

func numbersOf(h proto.EditorReplace) [4]int {
	return [4]int{*h.OldStart, *h.OldLines, *h.NewStart, *h.NewLines}
}

var hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$`)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
