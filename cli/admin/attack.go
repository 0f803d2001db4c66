package admin

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
	"berth/test/attack"
)

// AttackCommand returns `berth attack`. It is part of the program, not of its tests, so that operators can run it on
// their own machine and kernel.
func AttackCommand(a *app.App) *cobra.Command {
	var o attack.Options
	class, list := "all", false
	cmd := &cobra.Command{
		Use: "attack", Short: "Attack the daemon and its containers, and say what got through",
		Args: app.ArgCount(0, 0),
		Long: `Attack the daemon over its API and from inside containers, and report which attacks got through.

The command creates containers, images, files and keys with its API key, and removes them at the end. It uses all
processes, memory, disk and connections that the limits of a container allow. The daemon and its host are busy
meanwhile, so do not run it beside important work. Use an administrator's API key: some attacks need one.

The exit status is 0 if every attack was held, and 1 if one got through. It is 2 if none got through but some could not
be tried.`,
		Example: `  berth attack --quick
  berth attack --class gvisor --only escape/ --only syscalls/
  berth attack --list`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			if err := setClasses(&o, class); err != nil {
				return err
			}
			if list {
				return listAttacks(a, o)
			}
			return runAttacks(ctx, a, c, o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&class, "class", class,
		"runtime class to attack from inside: runc, gvisor, or all that the daemon offers")
	f.StringArrayVar(&o.Only, "only", nil, "only the attacks whose name begins so; may be given several times")
	f.BoolVar(&o.Quick, "quick", false, "leave out the slow ones, and race 20,000 rounds rather than 1,000,000")
	f.BoolVar(&list, "list", false, "list the attacks, and try none")
	f.StringVar(&o.Program, "program", "", "static `FILE` of this program that is copied into containers (default: "+
		"this program)")
	return a.AddFormatFlags(cmd)
}

// AttackProbeCommand returns the command that `berth attack` runs inside containers. It is hidden, because its
// arguments are a protocol between the two sides of an attack.
func AttackProbeCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: attack.ProbeCommand + " NAME [ARG…]", Short: "One step of an attack, inside a container", Hidden: true,
		DisableFlagParsing: true, // the arguments belong to the probe
		RunE:               func(_ *cobra.Command, args []string) error { return attack.RunProbe(a.Stdout, args) },
	}
}

// setClasses parses --class.
func setClasses(o *attack.Options, class string) error {
	switch c := proto.RuntimeClass(class); c {
	case "all":
		o.Classes = nil
	case proto.ClassRunc, proto.ClassGVisor:
		o.Classes = []proto.RuntimeClass{c}
	default:
		return proto.Errorf(proto.InvalidArgument, "", "class", "--class %q is not known; use runc, gvisor or all",
			class)
	}
	return nil
}

// attackRow is an attack in the output of --list. Its texts are those of the reports.
type attackRow struct {
	Group  int    `json:"group"`
	Name   string `json:"name"`
	Inside bool   `json:"inside"` // run once in each runtime class
	Slow   bool   `json:"slow"`
	Tries  string `json:"tries"`
	Wants  string `json:"wants"`
}

// listAttacks prints the attacks without a daemon.
func listAttacks(a *app.App, o attack.Options) error {
	list, rows := []attackRow{}, [][]string{}
	for _, s := range o.Plan([]proto.RuntimeClass{proto.ClassRunc}) { // one class, so that each attack is listed once
		list = append(list, attackRow{s.Group, s.Name, s.Inside, s.Slow, s.Tries, s.Wants})
		rows = append(rows, []string{strconv.Itoa(s.Group), s.Name, s.Tries})
	}
	if a.JSON {
		return a.PrintJSON(list)
	}
	return attackTable(a, []string{"GROUP", "NAME", "TRIES TO"}, rows)
}

// runAttacks runs the attacks and prints the results, also after an interruption. It prints them at the end in one
// table, because the worst results come first. A status line shows the current attack until then.
func runAttacks(ctx context.Context, a *app.App, c *client.Client, o attack.Options) error {
	o.Client = c
	line := a.NewStatusLine()
	o.Begin = func(s attack.Step) {
		line.Show(fmt.Sprintf("%d/%d %s", s.N, s.Of, strings.TrimSpace(s.Name+" "+string(s.Class))))
	}
	reports := []attack.Report{}
	began := time.Now()
	err := attack.Run(ctx, o, func(r attack.Report) { reports = append(reports, r) })
	line.Clear()
	if err != nil && len(reports) == 0 {
		return err
	}
	// A printing error comes first: a status without its table is not reliable.
	return cmp.Or(printAttacks(a, reports, time.Since(began)), err, attackStatus(reports))
}

// attackStatus returns the exit status. A successful attack counts more than one that could not be tried. The latter
// has its own status, because it must not count as defended.
func attackStatus(reports []attack.Report) error {
	switch n := countVerdicts(reports); {
	case n[attack.Through] > 0:
		return app.ExitError{Status: app.StatusThrough}
	case n[attack.Untried] > 0:
		return app.ExitError{Status: app.StatusUntried}
	}
	return nil
}

func countVerdicts(reports []attack.Report) map[attack.Verdict]int {
	n := map[attack.Verdict]int{}
	for _, r := range reports {
		n[r.Verdict]++
	}
	return n
}

// attackOrder has the most important verdicts first.
var attackOrder = []attack.Verdict{attack.Through, attack.Untried, attack.Unneeded, attack.Held}

// printAttacks prints the table, with successful attacks first, and details below.
func printAttacks(a *app.App, reports []attack.Report, took time.Duration) error {
	// A stable sort keeps the attacks of one verdict in their order of execution.
	slices.SortStableFunc(reports, func(x, y attack.Report) int {
		return slices.Index(attackOrder, x.Verdict) - slices.Index(attackOrder, y.Verdict)
	})
	if a.JSON {
		return a.PrintJSON(reports)
	}
	var rows [][]string
	for _, r := range reports {
		verdict := string(r.Verdict)
		if r.Verdict == attack.Through {
			verdict = "THROUGH"
		}
		rows = append(rows, []string{strconv.Itoa(r.Group), r.Name, string(r.Class), verdict, term.OneLine(r.Happened)})
	}
	if err := attackTable(a, []string{"GROUP", "NAME", "CLASS", "VERDICT", "WHAT HAPPENED"}, rows); err != nil {
		return err
	}
	for _, r := range reports {
		// Texts may come from inside a container, so control characters are removed.
		if r.Verdict == attack.Through || r.Verdict == attack.Untried {
			fmt.Fprintf(a.Stdout, "\n%s %s: %s\n  tried:    %s\n  wanted:   %s\n  happened: %s\n",
				r.Name, r.Class, r.Verdict, term.Printable(r.Tries), term.Printable(r.Wants),
				term.Printable(term.OneLine(r.Happened)))
		}
	}
	n := countVerdicts(reports)
	_, err := fmt.Fprintf(a.Stdout, "\n%d held, %d got through, %d could not be tried, %d do not apply, in %v\n",
		n[attack.Held], n[attack.Through], n[attack.Untried], n[attack.Unneeded], took.Round(time.Second))
	return err
}

// attackTable prints a table. On a terminal it cuts the last column at the right edge.
func attackTable(a *app.App, head []string, rows [][]string) error {
	width := 0
	if f, ok := a.Stdout.(*os.File); ok {
		width = term.Width(f)
	}
	cutLast(head, rows, width)
	return a.Table(head, rows)
}

// minCell is the minimum width of a cut cell, in characters. A narrower cell would say nothing; rows wrap instead.
const minCell = 24

// cutLast cuts the last column so that rows fit a width. Width 0 means no limit.
func cutLast(head []string, rows [][]string, width int) {
	if width == 0 {
		return
	}
	last := len(head) - 1
	for col := range last {
		longest := len(head[col])
		for _, row := range rows {
			longest = max(longest, len(row[col]))
		}
		width -= longest + 3 // the gap between columns
	}
	for _, row := range rows {
		row[last] = term.Short(row[last], max(width, minCell))
	}
}
