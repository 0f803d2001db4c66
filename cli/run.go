package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// runCommand is `berth run`.
// Like exec it does not go through do: from the moment the command runs, signals are the
// command's.
func runCommand(a *app.App) *cobra.Command {
	r := &runner{App: a}
	cmd := &cobra.Command{
		Use: "run [flags] [--] COMMAND [ARG…]", Short: "Create a container and run a command in it",
		Long: `Create a container, run a command in it and stream its output. The exit status is the command's.

The container stays for the next command unless --rm is given; its ID is printed on standard error, and with --detach on
standard output. With -t and no command, bash is run.`,
		Example: `  berth run --rm -- python3 -c 'print(6*7)'
  berth run --name work --file data.csv -c 'wc -l "$INPUT_DIR"/*'
  berth run -it`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) },
	}
	r.container.register(cmd)
	r.exec.register(cmd)
	cmd.Flags().BoolVar(&r.rm, "rm", false, "delete the container when the command ends")
	completeContainerFlags(a, cmd)
	return a.AddJSONFlag(a.AddQuietFlag(cmd, "print the command's output only"))
}

// A runner is one `berth run`.
// What it made is remembered as it is made, so that tidy knows how far it came.
type runner struct {
	*app.App
	container containerFlags
	exec      execFlags
	rm        bool

	caught   chan os.Signal // until all is tidied up: a signal must not end berth and leave something behind
	c        *client.Client
	made     proto.Container
	uploaded []string // for this run
}

// run makes the container, runs the command and tidies up. The command line is checked first, so that a mistake in it
// makes nothing.
func (r *runner) run(ctx context.Context, args []string) error {
	if r.exec.tty && len(args) == 0 && r.exec.text == "" {
		args = []string{"bash"}
	}
	cmd, err := r.exec.command(args)
	if err != nil {
		return err
	}
	if r.rm && r.exec.detach {
		return proto.Errorf(proto.InvalidArgument, "", "rm", "--rm waits for the command's end and --detach does "+
			"not; use --lifetime with --detach")
	}
	var stop func()
	r.caught, stop = catch()
	defer stop()
	if err := r.create(ctx); err != nil {
		return err
	}
	if r.exec.detach {
		return r.launch(ctx, cmd)
	}
	print := newPrinter(r.App)
	at := &attachment{c: r.c, container: r.made.ID, cmd: cmd, print: print, caught: r.caught}
	res, err := at.run(ctx)
	if r.rm || !at.started { // nobody would ever ask for one that never ran anything
		r.tidy(ctx)
	}
	if err != nil {
		return err
	}
	return concludeExec(r.App, res, print)
}

// interruptible does what the user may interrupt, before there is a command that signals are for.
func (r *runner) interruptible(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case sig := <-r.caught:
				if ends(sig) {
					cancel(app.Interruption{Signal: sig.(syscall.Signal)})
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err := do(ctx)
	cancel(nil)
	<-done
	// Also where it was too late to stop anything: that signal is gone, and the command would not see it.
	if cause := context.Cause(ctx); errors.Is(cause, app.ErrInterrupted) {
		return cause
	}
	return err
}

// create makes the container, until the user interrupts it.
func (r *runner) create(ctx context.Context) (err error) {
	if r.c, err = r.NewClient(); err != nil {
		return err
	}
	err = r.interruptible(ctx, func(ctx context.Context) error {
		req, uploaded, err := r.container.request(ctx, r.App, r.c)
		// Also after an error: tidy deletes what had been uploaded by then.
		r.uploaded = uploaded
		if err == nil {
			r.made, err = r.c.Create(ctx, req)
		}
		return err
	})
	if err != nil {
		r.tidy(ctx)
		return app.AddImageHint(r.App, err)
	}
	// Before the command runs, so that the ID is known even if berth is killed.
	if !r.Quiet && !r.exec.detach {
		fmt.Fprintln(r.Stderr, term.Printable(r.made.ID))
	}
	return nil
}

// launch starts the command and leaves it, unless the user interrupts that.
// Both IDs are printed, and the container's on standard output: with it the command's can be found
// again.
func (r *runner) launch(ctx context.Context, cmd proto.Cmd) error {
	var e proto.Exec
	err := r.interruptible(ctx, func(ctx context.Context) (err error) {
		e, err = r.c.Launch(ctx, r.made.ID, cmd)
		return err
	})
	if err != nil {
		r.tidy(ctx)
		return err
	}
	if r.JSON {
		return r.PrintJSON(e)
	}
	if !r.Quiet {
		fmt.Fprintln(r.Stderr, term.Printable(e.ID))
	}
	return r.PrintIDs(r.made.ID)
}

// tidy removes what the run made. It is done even if the user wants out.
// What cannot be removed is named, since it would count against the user's quota unseen.
func (r *runner) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), app.CleanupTimeout)
	defer cancel()
	if r.made.ID != "" {
		if _, err := r.c.Delete(ctx, r.made.ID, false); err != nil && proto.CodeOf(err) != proto.NotFound {
			fmt.Fprintf(r.Stderr, "berth: container %s could not be deleted: %s\n", term.Printable(r.made.ID),
				term.Printable(err.Error()))
		}
	}
	for _, id := range r.uploaded {
		if err := r.c.DeleteFile(ctx, id); err != nil && proto.CodeOf(err) != proto.NotFound {
			fmt.Fprintf(r.Stderr, "berth: stored file %s could not be deleted: %s\n", term.Printable(id),
				term.Printable(err.Error()))
		}
	}
}
