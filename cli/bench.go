package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth/client"
	"berth/proto"
	"berth/test/bench"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// benchFiles are where a run's report goes and comes from. "" is nowhere.
type benchFiles struct {
	json, markdown, svg, check string
}

// benchCommand is `berth bench`. It is part of the program, so that whoever runs a daemon can measure their own
// machine, and so that what is measured is what is used.
func (a *app) benchCommand() *cobra.Command {
	var o bench.Options
	var files benchFiles
	list := false
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure the daemon beside the bare machine, containerd, docker and others",
		Args: takes(0, 0),
		Long: `Measure the daemon, in turns with the bare machine and with other ways to run containers, and print percentiles and ratios.

It measures the daemon that the other commands talk to, or with --self one that it starts. What needs a daemon with flags of its
own, such as a full pool, starts one, with a data directory that is removed again. Comparators that this machine lacks are named in the report.

The exit status is 1 if a row failed, be it once of several tries, or if with --check a ratio is more than 20 % worse than in that file,
thrice in a row, or was not measured although that file has it. A target that is missed is shown and no failure.`,
		Example: `  berth bench --rows exec,warm
  berth bench --self --base base.tar --json report.json --markdown report.md --svg report.svg
  berth bench --self --base base.tar --check docs/benchmarks.json`,
		RunE: a.do(func(ctx context.Context, c *client.Client, _ []string) error {
			if list {
				return a.listBenchmarks()
			}
			if err := a.benchOptions(&o, c); err != nil {
				return err
			}
			return a.bench(ctx, o, files)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&list, "list", false, "list the rows, and measure none")
	f.StringSliceVar(&o.Rows, "rows", nil, "only these rows")
	f.BoolVar(&o.Quick, "quick", false, "few rounds: shows that it works, and the numbers say little")
	f.BoolVar(&o.Full, "full", false, "the long forms: 5 minutes of create and delete, 500 idle containers, a burst "+
		"on a small pool")
	f.BoolVar(&o.Alone, "alone", false, "leave the comparators out")
	f.BoolVar(&o.Self, "self", false, "measure a daemon that is started for it")
	f.StringVar(&o.Base, "base", "", "`FILE` of the base image, as berth image build writes it; for --self and for "+
		"what is compared")
	f.StringVar(&o.Dir, "dir", "", "`DIR` where copies and private daemons' data go; on the file system of the "+
		"measured daemon's data; default: that of temporary files")
	f.StringVar(&files.json, "json", "", "`FILE` for the report as JSON; rows that it has and that were not "+
		"measured, or failed, stay")
	f.StringVar(&files.markdown, "markdown", "", "`FILE` for the report as tables")
	f.StringVar(&files.svg, "svg", "", "`FILE` for a plot of ratios and their targets")
	f.StringVar(&files.check, "check", "", "`FILE` of an earlier run whose ratios are to hold")
	return cmd
}

// listBenchmarks prints what rows there are.
func (a *app) listBenchmarks() error {
	var rows [][]string
	for _, d := range bench.List() {
		rows = append(rows, []string{d.Name, d.Does})
	}
	return a.table([]string{"ROW", "MEASURES"}, rows)
}

// benchOptions fills in what the flags do not say.
func (a *app) benchOptions(o *bench.Options, c *client.Client) (err error) {
	if o.Self && o.Base == "" {
		return proto.Errorf(proto.InvalidArgument, "", "base", "--self needs the base image for its daemon; make it "+
			"with `berth image build base --output FILE` and give --base FILE")
	}
	if o.Base != "" {
		if o.Base, err = filepath.Abs(o.Base); err != nil {
			return err
		}
		if _, err := os.Stat(o.Base); err != nil {
			return err
		}
	}
	if o.Dir != "" {
		if o.Dir, err = filepath.Abs(o.Dir); err != nil { // daemons are given it
			return err
		}
	}
	if o.Program, err = os.Executable(); err != nil {
		return err
	}
	// What stands beside the program is found even if PATH has only a link to it.
	if o.Program, err = filepath.EvalSymlinks(o.Program); err != nil {
		return err
	}
	o.Client, o.Version = c, a.cfg.Version
	return nil
}

// bench measures, prints and saves. What was measured before an interruption is printed and not saved.
func (a *app) bench(ctx context.Context, o bench.Options, files benchFiles) error {
	line := &statusLine{app: a, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	o.Say = line.show
	var earlier bench.Report
	var err error
	if files.check != "" {
		if earlier, err = bench.Load(files.check); err != nil {
			return err
		}
	}
	if files.json != "" {
		if err := bench.Fits(files.json, o); err != nil {
			return err
		}
	}
	if files.markdown != "" {
		if _, _, err := bench.Place(files.markdown); err != nil {
			return err
		}
	}
	report, worse, alone, err := measureOrCheck(ctx, o, files.check != "", earlier)
	line.clear()
	if len(report.Rows) > 0 {
		fmt.Fprint(a.stdout, printableLines(report.Markdown()))
	}
	if err != nil {
		return err
	}
	kept, err := files.save(report)
	for _, name := range kept {
		fmt.Fprintf(a.stdout, "%s keeps its earlier %s\n", files.json, printable(name))
	}
	if err != nil {
		return err
	}
	for _, name := range alone {
		fmt.Fprintf(a.stdout, "not compared: %s\n", printable(name))
	}
	for _, w := range worse {
		fmt.Fprintf(a.stdout, "WORSE: %s\n", printable(oneLine(w.String())))
	}
	if len(worse) > 0 || report.Failed() > 0 {
		return exitError{statusWorse}
	}
	return nil
}

// measureOrCheck is a run alone, or one beside an earlier one.
func measureOrCheck(ctx context.Context, o bench.Options, check bool, earlier bench.Report) (bench.Report,
	[]bench.Regression, []string, error) {
	if check {
		return bench.Check(ctx, o, earlier)
	}
	report, err := bench.Run(ctx, o)
	return report, nil, nil, err
}

// save writes the files that were asked for. With JSON the others show what that has then, so that rows can be
// measured one by one; kept are the rows that it has still, though they were measured.
func (f benchFiles) save(report bench.Report) (kept []string, err error) {
	if f.json != "" {
		if report, kept, err = bench.Save(f.json, report); err != nil {
			return kept, err
		}
	}
	if f.markdown != "" {
		if err := bench.SaveMarkdown(f.markdown, report); err != nil {
			return kept, err
		}
	}
	if f.svg != "" {
		return kept, bench.SaveSVG(f.svg, report)
	}
	return kept, nil
}

// printableLines is printable for a text of several lines: a report holds words of other programs.
func printableLines(text string) string {
	var w strings.Builder
	for line := range strings.Lines(text) {
		w.WriteString(printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return w.String()
}
