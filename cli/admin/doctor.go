package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// DoctorCommand returns `berth doctor`.
func DoctorCommand(a *app.App) *cobra.Command {
	o := app.DoctorOptions{Dir: a.Config.DataDir}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check whether this machine can run containers, and say how to fix problems",
		Args: app.ArgCount(0, 0),
		Long: `Check this machine: kernel, cgroups, namespaces, runtimes, disk and limits. Start a container of each runtime
class, in a directory that is removed afterwards. If a daemon runs, it does so too. The exit status is 1 if there is a
problem that must be fixed.`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			r := &rounds{App: a, c: c, found: []app.Finding{}}
			if err := a.Config.Doctor(ctx, o, func(f app.Finding) { r.report(ctx, f) }); err != nil {
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
	cmd.Flags().StringVar(&o.BinDir, "bin", "", "directory of berth-guest, runc, runsc and the shim (default: the "+
		"directory of berth)")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "start no containers")
	return a.AddFormatFlags(cmd)
}

// rounds is one run of the doctor.
type rounds struct {
	*app.App
	c      *client.Client
	found  []app.Finding
	counts [3]int // number of findings: ok, warn, fail
	err    error  // the first printing error
}

// report prints a finding at once, because some checks take seconds. The columns therefore have a fixed width. The
// reason and the fix follow on their own lines. report ignores findings after an interruption, because they do not
// describe the machine.
func (r *rounds) report(ctx context.Context, f app.Finding) {
	if ctx.Err() != nil {
		return
	}
	r.found = append(r.found, f)
	switch f.Grade {
	case app.GradeOK:
		r.counts[0]++
	case app.GradeWarn:
		r.counts[1]++
	default:
		r.counts[2]++
	}
	if r.JSON {
		return
	}
	r.line("%s", strings.TrimRight(fmt.Sprintf("%-4s  %-30s  %s", strings.ToUpper(term.Printable(string(f.Grade))),
		term.Printable(f.Name), term.Printable(f.Found)), " "))
	if f.Grade == app.GradeOK {
		return
	}
	// 38 columns are the width of grade and name with their gaps.
	for _, line := range [][2]string{{"why", f.Why}, {"fix", f.Fix}} {
		if line[1] != "" {
			r.line("%38s%s: %s", "", line[0], term.Printable(line[1]))
		}
	}
}

// line prints one line and keeps the first error. A truncated report must not be taken for a complete one.
func (r *rounds) line(format string, args ...any) {
	if _, err := fmt.Fprintf(r.Stdout, format+"\n", args...); r.err == nil {
		r.err = err
	}
}

// sum prints the summary and returns the exit status.
func (r *rounds) sum() error {
	if r.JSON {
		r.err = r.PrintJSON(r.found)
	} else {
		r.line("\n%d ok, %d to know of, %d to mend", r.counts[0], r.counts[1], r.counts[2])
	}
	if r.err != nil {
		return r.err
	}
	// Warnings do not count: the machine works, and setup scripts should continue.
	if r.counts[2] > 0 {
		return app.ExitError{Status: app.StatusUnhealthy}
	}
	return nil
}

// daemon has the daemon start a container of each class, which proves more than checks of the machine.
func (r *rounds) daemon(ctx context.Context) {
	info, err := r.c.Info(ctx)
	var dial *client.DialError
	switch {
	case errors.As(err, &dial):
		r.report(ctx, app.Finding{Name: "daemon", Grade: app.GradeWarn, Found: err.Error(),
			Why: "the other commands need one",
			Fix: "start it with `berth serve`"})
		return
	case err != nil:
		r.report(ctx, app.Finding{Name: "daemon", Grade: app.GradeFail, Found: err.Error(),
			Why: "no container can be started through it", Fix: r.HintFor(err)})
		return
	}
	r.report(ctx, app.Finding{Name: "daemon", Grade: app.GradeOK, Found: fmt.Sprintf("version %s at %s", info.Version,
		r.c.Host())})
	for _, class := range info.RuntimeClasses {
		r.class(ctx, class)
	}
}

// class starts a container, runs a command in it and deletes it.
func (r *rounds) class(ctx context.Context, class proto.RuntimeClass) {
	name, began := "container, "+string(class), time.Now()
	// The container expires after ten minutes, in case berth is killed before it deletes the container.
	con, err := r.c.Create(ctx, proto.CreateContainer{RuntimeClass: class, MaxLifetimeSeconds: 600})
	if err == nil {
		err = r.handshake(ctx, con.ID)
		// Delete it even after an interruption: the doctor leaves the machine unchanged.
		dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), app.CleanupTimeout)
		defer cancel()
		if _, derr := r.c.Delete(dctx, con.ID, false); err == nil {
			err = derr
		}
	}
	if err != nil {
		r.report(ctx, app.Finding{Name: name, Grade: app.GradeFail, Found: err.Error(),
			Why: "containers of this class cannot be used",
			Fix: r.HintFor(app.AddImageHint(r.App, err))})
		return
	}
	r.report(ctx, app.Finding{Name: name, Grade: app.GradeOK, Found: fmt.Sprintf("made, used and deleted in %v",
		time.Since(began).Round(time.Millisecond))})
}

// handshake runs a command in the container and checks its output. That tests the guest, the socket and the pipes.
func (r *rounds) handshake(ctx context.Context, container string) error {
	e, err := r.c.Launch(ctx, container, proto.Cmd{Argv: []string{"echo", "hello"}, TimeoutSeconds: 60})
	if err != nil {
		return err
	}
	res, err := r.c.Wait(ctx, container, e.ID)
	if err != nil {
		return err
	}
	if out := res.Result.Result; out == nil || out.Stdout != "hello\n" {
		return fmt.Errorf("a command in it ended with %s", term.EndText(res.Exec))
	}
	return nil
}
