package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/cli/term"
	"berth/client"
	"berth/proto"

	"github.com/spf13/cobra"
)

// A Grade is how bad a finding is.
type Grade string

// The grades.
const (
	GradeOK   Grade = "ok"
	GradeWarn Grade = "warn" // works, with less than there could be
	GradeFail Grade = "fail" // must be mended
)

// A Finding is what one check found.
type Finding struct {
	Name  string `json:"name"`
	Grade Grade  `json:"grade"`
	Found string `json:"found"`
	Why   string `json:"why,omitempty"` // it matters; empty if ok
	Fix   string `json:"fix,omitempty"` // what to do; empty if ok
}

// DoctorOptions say what to look at.
type DoctorOptions struct {
	Dir    string // data directory of the daemon
	BinDir string // of the runtimes and the guest; "" is where berth itself is
	Quick  bool   // start no containers
}

// A Doctor checks this machine and reports findings as they come, one at a time. Its error means that it could not
// look, not that it found something.
type Doctor func(ctx context.Context, o DoctorOptions, report func(Finding)) error

// doctorCommand is `berth doctor`.
func (a *app) doctorCommand() *cobra.Command {
	o := DoctorOptions{Dir: a.cfg.DataDir}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check whether this machine can run containers, and say how to mend what is wrong",
		Args: takes(0, 0),
		Long: `Check this machine: kernel, cgroups, namespaces, runtimes, disk and limits; start a container of each runtime class, in a
place of its own that is removed again; and have the daemon, if one runs, do so too. The exit status is 1 if something must be mended.`,
		RunE: a.do(func(ctx context.Context, c *client.Client, _ []string) error {
			r := &rounds{app: a, c: c, found: []Finding{}}
			if err := a.cfg.Doctor(ctx, o, func(f Finding) { r.report(ctx, f) }); err != nil {
				return err
			}
			if !o.Quick {
				r.daemon(ctx)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return r.sum()
		}),
	}
	cmd.Flags().StringVar(&o.Dir, "data", o.Dir, "data directory of the daemon")
	cmd.Flags().StringVar(&o.BinDir, "bin", "", "directory of berth-guest, runc, runsc and the shim (default: where "+
		"berth itself is)")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "start no containers")
	return a.jsonFlag(cmd)
}

// rounds are one visit of the doctor.
type rounds struct {
	*app
	c      *client.Client
	found  []Finding
	counts [3]int // ok, warn, fail
	err    error  // of the first line that could not be printed
}

// report prints one line as soon as it is known, since some checks take seconds; so the columns have a fixed width.
// Why it matters and what to do come below.
// What a check finds that the user interrupted says nothing of the machine.
func (r *rounds) report(ctx context.Context, f Finding) {
	if ctx.Err() != nil {
		return
	}
	r.found = append(r.found, f)
	switch f.Grade {
	case GradeOK:
		r.counts[0]++
	case GradeWarn:
		r.counts[1]++
	default:
		r.counts[2]++
	}
	if r.JSON {
		return
	}
	r.line("%s", strings.TrimRight(fmt.Sprintf("%-4s  %-30s  %s", strings.ToUpper(term.Printable(string(f.Grade))),
		term.Printable(f.Name), term.Printable(f.Found)), " "))
	if f.Grade == GradeOK {
		return
	}
	// 38 columns are the width of grade and name with their gaps.
	for _, line := range [][2]string{{"why", f.Why}, {"fix", f.Fix}} {
		if line[1] != "" {
			r.line("%38s%s: %s", "", line[0], term.Printable(line[1]))
		}
	}
}

// line prints one line. Whoever reads less than there is must not take it for all that was found.
func (r *rounds) line(format string, args ...any) {
	if _, err := fmt.Fprintf(r.Stdout, format+"\n", args...); r.err == nil {
		r.err = err
	}
}

// sum ends the visit.
func (r *rounds) sum() error {
	if r.JSON {
		r.err = r.PrintJSON(r.found)
	} else {
		r.line("\n%d ok, %d to know of, %d to mend", r.counts[0], r.counts[1], r.counts[2])
	}
	if r.err != nil {
		return r.err
	}
	// Warnings do not count: the machine works, and scripts that set it up should go on.
	if r.counts[2] > 0 {
		return exitError{statusUnhealthy}
	}
	return nil
}

// daemon has the daemon start a container of each class: what no look at the machine can promise.
func (r *rounds) daemon(ctx context.Context) {
	info, err := r.c.Info(ctx)
	var dial *client.DialError
	switch {
	case errors.As(err, &dial):
		r.report(ctx, Finding{"daemon", GradeWarn, err.Error(), "the other commands need one",
			"start it with `berth serve`"})
		return
	case err != nil:
		r.report(ctx, Finding{"daemon", GradeFail, err.Error(), "no container can be started through it", r.hint(err)})
		return
	}
	r.report(ctx, Finding{Name: "daemon", Grade: GradeOK, Found: fmt.Sprintf("version %s at %s", info.Version,
		r.c.Host())})
	for _, class := range info.RuntimeClasses {
		r.class(ctx, class)
	}
}

// class starts a container, runs a command in it and deletes it.
func (r *rounds) class(ctx context.Context, class proto.RuntimeClass) {
	name, began := "container, "+string(class), time.Now()
	// Ten minutes of life, should berth be killed before it deletes the container.
	con, err := r.c.Create(ctx, proto.CreateContainer{RuntimeClass: class, MaxLifetimeSeconds: 600})
	if err == nil {
		err = r.greet(ctx, con.ID)
		// Deleted even after an interruption: the doctor leaves the machine as it was.
		dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
		defer cancel()
		if _, derr := r.c.Delete(dctx, con.ID, false); err == nil {
			err = derr
		}
	}
	if err != nil {
		r.report(ctx, Finding{name, GradeFail, err.Error(), "containers of this class cannot be used",
			r.hint(r.imageHint(err))})
		return
	}
	r.report(ctx, Finding{Name: name, Grade: GradeOK, Found: fmt.Sprintf("made, used and deleted in %v",
		time.Since(began).Round(time.Millisecond))})
}

// greet runs a command in the container and wants its output back, which takes the guest, the socket and the pipes.
func (r *rounds) greet(ctx context.Context, container string) error {
	e, err := r.c.Launch(ctx, container, proto.Cmd{Argv: []string{"echo", "hello"}, TimeoutSeconds: 60})
	if err != nil {
		return err
	}
	res, err := r.c.Wait(ctx, container, e.ID)
	if err != nil {
		return err
	}
	if out := res.Result.Result; out == nil || out.Stdout != "hello\n" {
		return fmt.Errorf("a command in it ended with %s", endText(res.Exec))
	}
	return nil
}
