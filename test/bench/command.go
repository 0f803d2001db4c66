package bench

import (
	"context"
	"fmt"
	"io"
	"strings"

	"berth/cli/app"
	"berth/cli/term"
)

// Command runs the measurements that `berth bench` requests, prints the report, and saves it. It returns false if a
// row failed or got worse. After an interruption it prints what was measured, but saves nothing.
func Command(ctx context.Context, run app.BenchRun) (ok bool, err error) {
	if run.List {
		var table [][]string
		for _, d := range List() {
			table = append(table, []string{d.Name, d.Does})
		}
		return true, run.PrintRows([]string{"ROW", "MEASURES"}, table)
	}
	o := Options{Client: run.Client, Self: run.Self, Dir: run.Dir, Program: run.Program, Base: run.Base,
		Version: run.Version, Rows: run.Rows, Class: run.Class, Quick: run.Quick, Full: run.Full, Alone: run.Alone, Say: run.ShowStatus}
	var earlier Report
	if run.Check != "" {
		if earlier, err = Load(run.Check); err != nil {
			return false, err
		}
	}
	if run.JSON != "" {
		if err := Fits(run.JSON, o); err != nil {
			return false, err
		}
	}
	if run.Markdown != "" {
		if _, _, err := Place(run.Markdown); err != nil {
			return false, err
		}
	}
	var report Report
	var worse []Regression
	var alone []string
	if run.Check != "" {
		report, worse, alone, err = Check(ctx, o, earlier)
	} else {
		report, err = Run(ctx, o)
	}
	run.ClearStatus()
	if len(report.Rows) > 0 {
		printLines(run.Out, report.Markdown())
	}
	if err != nil {
		return false, err
	}
	kept, err := saveReport(run, report)
	for _, name := range kept {
		fmt.Fprintf(run.Out, "%s keeps its earlier %s\n", run.JSON, term.Printable(name))
	}
	if err != nil {
		return false, err
	}
	for _, name := range alone {
		fmt.Fprintf(run.Out, "not compared: %s\n", term.Printable(name))
	}
	for _, w := range worse {
		fmt.Fprintf(run.Out, "WORSE: %s\n", term.Printable(term.OneLine(w.String())))
	}
	return len(worse) == 0 && report.Failed() == 0, nil
}

// saveReport writes the requested files. If one is JSON, the others show the merged content of that file, so that
// rows can be measured one by one. kept names rows that were measured now but whose earlier result stays.
func saveReport(run app.BenchRun, report Report) (kept []string, err error) {
	if run.JSON != "" {
		if report, kept, err = Save(run.JSON, report); err != nil {
			return kept, err
		}
	}
	if run.Markdown != "" {
		if err := SaveMarkdown(run.Markdown, report); err != nil {
			return kept, err
		}
	}
	if run.SVG != "" {
		return kept, SaveSVG(run.SVG, report)
	}
	return kept, nil
}

// printLines prints a report without control characters, since it contains output of other programs.
func printLines(w io.Writer, text string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(term.Printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	fmt.Fprint(w, b.String())
}
