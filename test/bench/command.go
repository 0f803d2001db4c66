package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"berth/cli/app"
	"berth/cli/term"
	"berth/proto"
)

// Command runs the measurements that `berth bench` requests, prints the report, and saves it. It returns false if a
// row failed or got worse. After an interruption it prints and saves the rows that are finished.
func Command(ctx context.Context, run app.BenchRun) (ok bool, err error) {
	if run.List {
		var table [][]string
		for _, d := range List() {
			table = append(table, []string{d.Name, d.Does})
		}
		return true, run.PrintRows([]string{"ROW", "MEASURES"}, table)
	}
	all := optionsOf(run)
	var earlier Report
	if run.Check != "" {
		if earlier, err = Load(run.Check); err != nil {
			return false, err
		}
	}
	if run.JSON != "" {
		if err := Fits(run.JSON, all...); err != nil {
			return false, err
		}
	}
	if run.Markdown != "" {
		if _, _, err := Place(run.Markdown); err != nil {
			return false, err
		}
	}
	var total outcome
	for _, o := range all {
		if err = total.measure(ctx, run.Check != "", o, earlier); err != nil {
			break
		}
	}
	run.ClearStatus()
	if len(total.report.Rows) > 0 {
		printLines(run.Out, total.report.Markdown())
		err = cmp.Or(err, total.save(run))
	}
	return err == nil && len(total.worse) == 0 && total.report.Failed() == 0, err
}

// optionsOf returns the options of a run for each runtime class. Comparators have none, so they take part in the first.
func optionsOf(run app.BenchRun) (all []Options) {
	for i, class := range append(run.Classes, proto.ClassRunc)[:max(1, len(run.Classes))] {
		all = append(all, Options{Client: run.Client, Self: run.Self, Dir: run.Dir, Program: run.Program, Base: run.Base,
			Version: run.Version, Rows: run.Rows, Class: class, Quick: run.Quick, Full: run.Full,
			Alone: run.Alone || i > 0, Say: run.ShowStatus})
	}
	return all
}

// An outcome is what a run has measured in all runtime classes.
type outcome struct {
	report Report
	worse  []Regression
	alone  []string // measured, and not in the earlier report
}

// measure measures the rows in one class.
func (t *outcome) measure(ctx context.Context, check bool, o Options, earlier Report) (err error) {
	var report Report
	var worse []Regression
	var alone []string
	if check {
		report, worse, alone, err = Check(ctx, o, earlier)
	} else {
		report, err = Run(ctx, o)
	}
	if len(report.Rows) > 0 {
		t.report = Merge(t.report, report)
	}
	t.worse, t.alone = append(t.worse, worse...), append(t.alone, alone...)
	return err
}

// save saves the report, and prints what is to be said about it.
func (t *outcome) save(run app.BenchRun) error {
	kept, err := saveReport(run, t.report)
	for _, name := range kept {
		fmt.Fprintf(run.Out, "%s keeps its earlier %s\n", run.JSON, term.Printable(name))
	}
	for _, name := range t.alone {
		fmt.Fprintf(run.Out, "not compared: %s\n", term.Printable(name))
	}
	for _, w := range t.worse {
		fmt.Fprintf(run.Out, "WORSE: %s\n", term.Printable(term.OneLine(w.String())))
	}
	return err
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
