package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/client"
	"berth/proto"
)

// BenchCommand returns `berth bench`. The measuring is in the program berth-bench, which needs libraries that berth
// does not. That program uses this command too, with a Bench.
func BenchCommand(a *app.App) *cobra.Command {
	run := app.BenchRun{Version: a.Config.Version}
	var classes string
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure the daemon beside the bare machine, containerd, docker and others",
		Args: app.ArgCount(0, 0),
		Long: `Measure the daemon in turns with the bare machine and with other ways to run containers. Print percentiles and
ratios. The program berth-bench beside this one does the work; 'make bench' builds it.

The run measures the daemon that the other commands talk to, or with --self a daemon that it starts. Rows that need a
daemon with flags of its own, such as a full pool, start one; its data directory is removed afterwards. The report
names the comparators that this machine lacks. With several runtime classes, all rows are measured in one after the
other, and comparators take part in the first. An interrupted run saves the rows that it has finished.

The exit status is 1 if a row failed, even in one of several tries. With --check it is also 1 if a ratio is more than
20 % worse than in that file three times in a row, or if a ratio in that file was not measured. A missed target is
shown and is not a failure.`,
		Example: `  berth bench --rows exec,warm
  berth bench --self --base base.tar --json report.json --markdown report.md --svg report.svg
  berth bench --self --base base.tar --runtime-class runc,gvisor --json report.json --markdown report.md
  berth bench --self --base base.tar --check docs/benchmarks.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Config.Bench == nil {
				return startBench()
			}
			for class := range strings.SplitSeq(classes, ",") {
				if class != "" {
					run.Classes = append(run.Classes, proto.RuntimeClass(class))
				}
			}
			return a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
				run.Client = c
				return runBench(ctx, a, run)
			})(cmd, nil)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&run.List, "list", false, "list the rows, and measure none")
	f.StringSliceVar(&run.Rows, "rows", nil, "measure these rows only")
	f.StringVar(&classes, "runtime-class", "", "measure containers of this `CLASS`: runc, gvisor, or both, separated "+
		"by a comma. The report has gvisor as a column beside runc (default: runc)")
	f.BoolVar(&run.Quick, "quick", false, "run few rounds: enough to show that a row works, too few for its numbers")
	f.BoolVar(&run.Full, "full", false, "run the long forms: 5 minutes of create and delete, 500 idle containers, a "+
		"burst on a small pool")
	f.BoolVar(&run.Alone, "alone", false, "leave the comparators out")
	f.BoolVar(&run.Self, "self", false, "start a daemon and measure that one")
	f.StringVar(&run.Base, "base", "", "`FILE` of the base image, as written by berth image build; needed by --self "+
		"and by comparators")
	f.StringVar(&run.Dir, "dir", "", "`DIR` for copies and for the data of private daemons, on the file system of the "+
		"measured daemon's data (default: that of temporary files)")
	f.StringVar(&run.JSON, "json", "", "`FILE` for the report as JSON; rows in it that failed now or were not "+
		"measured stay as they are")
	f.StringVar(&run.Markdown, "markdown", "", "`FILE` for the report as tables")
	f.StringVar(&run.SVG, "svg", "", "`FILE` for a plot of ratios and their targets")
	f.StringVar(&run.Check, "check", "", "`FILE` of an earlier report whose ratios have to hold")
	return cmd
}

// programDir returns the directory of this program. It follows links: PATH may contain only a link to the program.
func programDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	exe, err = filepath.EvalSymlinks(exe)
	return filepath.Dir(exe), err
}

// startBench replaces this process with berth-bench, with the same arguments.
func startBench() error {
	dir, err := programDir()
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "berth-bench")
	err = syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
	if errors.Is(err, fs.ErrNotExist) {
		return app.WithHint(fmt.Errorf("the program berth-bench is not in %s", dir),
			"`make bench` builds it; it has to be beside the program berth")
	}
	return &os.PathError{Op: "starting", Path: program, Err: err}
}

// runBench completes the options and runs the benchmarks.
func runBench(ctx context.Context, a *app.App, run app.BenchRun) (err error) {
	if run.Self && run.Base == "" && !run.List {
		return proto.Errorf(proto.InvalidArgument, "", "base", "--self needs the base image for its daemon; make it "+
			"with `berth image build base --output FILE` and give --base FILE")
	}
	for i, class := range run.Classes {
		if !slices.Contains(proto.RuntimeClasses, class) {
			return proto.Errorf(proto.InvalidArgument, "", "runtime-class", "there is no runtime class %q; use %q, %q "+
				"or both", class, proto.ClassRunc, proto.ClassGVisor)
		}
		if slices.Contains(run.Classes[:i], class) {
			return proto.Errorf(proto.InvalidArgument, "", "runtime-class", "the runtime class %q is there twice",
				class)
		}
	}
	// Daemons get both paths and have another working directory.
	if run.Base != "" {
		if run.Base, err = filepath.Abs(run.Base); err != nil {
			return err
		}
		if _, err := os.Stat(run.Base); err != nil {
			return err
		}
	}
	if run.Dir != "" {
		if run.Dir, err = filepath.Abs(run.Dir); err != nil {
			return err
		}
	}
	dir, err := programDir()
	if err != nil {
		return err
	}
	run.Program = filepath.Join(dir, "berth")
	line := a.NewStatusLine()
	run.Out, run.ShowStatus, run.ClearStatus, run.PrintRows = a.Stdout, line.Show, line.Clear, a.Table
	ok, err := a.Config.Bench(ctx, run)
	if err == nil && !ok {
		return app.ExitError{Status: app.StatusWorse}
	}
	return err
}
