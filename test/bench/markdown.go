package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// Markdown returns the report as Markdown.
func (r Report) Markdown() string {
	var w strings.Builder
	s := r.Stamp
	w.WriteString(wrapText(fmt.Sprintf(
		"%s, berth %s. %s, %d cores, %.0f GiB, Linux %s, cgroups %s, data on %s, %s, load %s.",
		s.Date.Format("2006-01-02 15:04 UTC"), s.Version, s.CPU, s.Cores, s.MemoryGB, s.Kernel, s.Cgroups, s.Disk, s.Go,
		s.Load)))
	var versions strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.Versions)) {
		fmt.Fprintf(&versions, "%s: %s. ", name, s.Versions[name])
	}
	w.WriteString(wrapText(versions.String()))
	w.WriteString("\n| row | ratio | is | target | held |\n|---|---|---:|---:|---|\n")
	for _, res := range r.Rows {
		res.ratioLines(&w)
	}
	w.WriteString("\n| row | what | unit | n | p50 | p90 | p99 | failed |\n|---|---|---|---:|---:|---:|---:|---:|\n")
	for _, res := range r.Rows {
		for _, m := range res.Measures {
			fmt.Fprintf(&w, "| %s | %s | %s | %d | %s | %s | %s | %d |\n", res.Row, cell(m.Name), m.Unit, m.N,
				number(m.P50), number(m.P90), number(m.P99), m.Failures)
		}
	}
	w.WriteString("\n")
	for _, res := range r.Rows {
		var remarks strings.Builder
		res.remarks(&remarks)
		w.WriteString(wrapText(remarks.String()))
	}
	return w.String()
}

// ratioLines writes a row's lines of the first table.
func (r Result) ratioLines(w *strings.Builder) {
	switch {
	case r.Failed != "":
		fmt.Fprintf(w, "| %s | failed: %s | | | **no** |\n", r.Row, cell(r.Failed))
	case r.Skipped != "":
		fmt.Fprintf(w, "| %s | not measured: %s | | | |\n", r.Row, cell(r.Skipped))
	}
	for _, ratio := range r.Ratios {
		target, held := "", ""
		if ratio.Target != 0 {
			sign := "≤"
			if ratio.Higher {
				sign = "≥"
			}
			target, held = sign+" "+number(ratio.Target), "yes"
			if !ratio.Held() {
				held = "**no**"
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", r.Row, cell(ratio.Name), number(ratio.Value), target, held)
	}
}

// remarks writes notes that explain a row's numbers.
func (r Result) remarks(w *strings.Builder) {
	fmt.Fprintf(w, "- **%s**: %s.", r.Row, r.Does)
	for _, n := range r.Notes {
		fmt.Fprintf(w, " %s", n)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(w, " Missing: %s (%s).", m.Name, m.Reason)
	}
	if r.Quick {
		w.WriteString(" A quick run: its numbers say little.")
	}
	fmt.Fprintf(w, " (%s, %s, load %s)\n", r.At.Format("01-02 15:04"), r.Version, r.Load)
}

// pageWidth is the line length of text in the document, in characters.
const pageWidth = 100

// wrapText breaks text into lines of at most pageWidth and indents all lines but the first, as in a list.
func wrapText(text string) string {
	indent := ""
	if strings.HasPrefix(text, "- ") {
		indent = "  "
	}
	var w strings.Builder
	width := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case width == 0:
		case width+1+n > pageWidth:
			w.WriteString("\n" + indent)
			width = len(indent)
		default:
			w.WriteByte(' ')
			width++
		}
		w.WriteString(word)
		width += n
	}
	w.WriteByte('\n')
	return w.String()
}

// cell escapes text for a table cell.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
}

// number formats a value with three significant digits.
func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Marks around the newest run in a document. The text outside them is written by hand.
const (
	beginMark = "<!-- begin of what berth bench wrote -->"
	endMark   = "<!-- end of what berth bench wrote -->"
)

// SaveMarkdown writes the report into a document. If the document has the two marks, it replaces the text between
// them; otherwise it replaces the whole file.
func SaveMarkdown(file string, r Report) error {
	before, after, err := Place(file)
	if err != nil {
		return err
	}
	return write(file, []byte(before+beginMark+"\n"+r.Markdown()+endMark+"\n"+after))
}

// Place returns the text before and after the report in a document. A document that does not exist has neither. A
// document without a place for the report is an error. Callers check this before they measure.
func Place(file string) (before, after string, err error) {
	old, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(old) == 0 {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	before, rest, begins := strings.Cut(string(old), beginMark)
	_, after, ends := strings.Cut(rest, endMark+"\n")
	if !begins || !ends {
		return "", "", fmt.Errorf("%s has no place for the report; put these two lines into it: %s %s", file, beginMark,
			endMark)
	}
	return before, after, nil
}
