package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"berth/proto"
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
	w.WriteString("\n| row | ratio | is | target | held | gvisor |\n|---|---|---:|---:|---|---:|\n")
	for _, p := range r.pairs() {
		p.ratioLines(&w)
	}
	w.WriteString("\n| row | what | unit | n | p50 | p90 | p99 | failed | gvisor, p50 | gvisor / runc |\n" +
		"|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, p := range r.pairs() {
		p.measureLines(&w)
	}
	w.WriteString("\n")
	for _, p := range r.pairs() {
		var remarks strings.Builder
		p.remarks(&remarks)
		w.WriteString(wrapText(remarks.String()))
	}
	return w.String()
}

// A pair is one row of the document. Either of the two results may lack.
type pair struct{ runc, gvisor *Result }

// pairs returns the rows of the report, each with both runtime classes.
func (r Report) pairs() (all []pair) {
	for _, of := range rows {
		p := pair{r.row(of.name, ""), r.row(of.name, proto.ClassGVisor)}
		if p.runc != nil || p.gvisor != nil {
			all = append(all, p)
		}
	}
	return all
}

// names returns the names of a kind that both results have, those of runc first.
func (p pair) names(of func(*Result) []string) (all []string) {
	for _, res := range []*Result{p.runc, p.gvisor} {
		if res == nil {
			continue
		}
		for _, name := range of(res) {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// row returns the name of the row.
func (p pair) row() string {
	if p.runc != nil {
		return p.runc.Row
	}
	return p.gvisor.Row
}

// ratioLines writes a row's lines of the first table.
func (p pair) ratioLines(w *strings.Builder) {
	for _, res := range []*Result{p.runc, p.gvisor} {
		switch {
		case res == nil:
		case res.Failed != "":
			fmt.Fprintf(w, "| %s | failed: %s | | | **no** | |\n", res.name(), cell(res.Failed))
		case res.Skipped != "" && res.Class == "": // for gVisor, a remark has the reason
			fmt.Fprintf(w, "| %s | not measured: %s | | | | |\n", res.Row, cell(res.Skipped))
		}
	}
	names := p.names(func(res *Result) (all []string) {
		for _, ratio := range res.Ratios {
			all = append(all, ratio.Name)
		}
		return all
	})
	for _, name := range names {
		var is, target, held, gvisor string
		if ratio := p.runc.ratioOf(name); ratio != nil {
			is = number(ratio.Value)
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
		}
		if ratio := p.gvisor.ratioOf(name); ratio != nil {
			gvisor = number(ratio.Value)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", p.row(), cell(name), is, target, held, gvisor)
	}
}

// measureLines writes a row's lines of the second table.
func (p pair) measureLines(w *strings.Builder) {
	names := p.names(func(res *Result) (all []string) {
		for _, m := range res.Measures {
			all = append(all, m.Name)
		}
		return all
	})
	for _, name := range names {
		runc, gvisor := p.runc.tried(name), p.gvisor.measure(name)
		fmt.Fprintf(w, "| %s | %s | %s | ", p.row(), cell(name), cmp.Or(runc, p.gvisor.tried(name)).Unit)
		if runc != nil {
			fmt.Fprintf(w, "%d | %s | %s | %s | %d |", runc.N, number(runc.P50), number(runc.P90), number(runc.P99),
				runc.Failures)
		} else {
			w.WriteString("| | | | |")
		}
		switch {
		case gvisor == nil || gvisor.Role != Ours:
			w.WriteString(" | |\n")
		case runc == nil || runc.N == 0 || runc.P50 == 0:
			fmt.Fprintf(w, " %s | |\n", number(gvisor.P50))
		default:
			fmt.Fprintf(w, " %s | %s |\n", number(gvisor.P50), number(gvisor.P50/runc.P50))
		}
	}
}

// remarks writes notes that explain a row's numbers.
func (p pair) remarks(w *strings.Builder) {
	if p.runc != nil {
		p.runc.remarks(w)
	} else {
		fmt.Fprintf(w, "- **%s**: %s.", p.gvisor.Row, p.gvisor.Does)
	}
	if g := p.gvisor; g != nil && g.Skipped != "" {
		fmt.Fprintf(w, " With gvisor not measured: %s.", g.Skipped)
	} else if g != nil {
		w.WriteString(" With gvisor")
		for _, n := range g.Notes {
			if p.runc == nil || !slices.Contains(p.runc.Notes, n) {
				fmt.Fprintf(w, " %s", n)
			}
		}
		for _, m := range g.Missing {
			if p.runc == nil || !slices.Contains(p.runc.Missing, m) {
				m.write(w)
			}
		}
		g.when(w)
	}
}

// remarks writes notes that explain a row's numbers.
func (r Result) remarks(w *strings.Builder) {
	fmt.Fprintf(w, "- **%s**: %s.", r.Row, r.Does)
	for _, n := range r.Notes {
		fmt.Fprintf(w, " %s", n)
	}
	for _, m := range r.Missing {
		m.write(w)
	}
	if r.Quick {
		w.WriteString(" A quick run: its numbers say little.")
	}
	r.when(w)
}

// write writes what is missing, and why.
func (m Missing) write(w *strings.Builder) { fmt.Fprintf(w, " Missing: %s (%s).", m.Name, m.Reason) }

// when writes when a result was measured.
func (r Result) when(w *strings.Builder) {
	fmt.Fprintf(w, " (%s, %s, load %s)", r.At.Format("01-02 15:04"), r.Version, r.Load)
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
