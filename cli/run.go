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

// runCommand returns `berth run`. Like exec it does not use WithClient: once the command runs, signals go to the
// command.
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
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "print the command's output only"))
}

// A runner is one `berth run`. It records what it created at once, so that deleteMade can delete it after any error.
type runner struct {
	*app.App
	container containerFlags
	exec      execFlags
	rm        bool

	caught   chan os.Signal // caught until the cleanup is done: a signal must not end berth before that
	c        *client.Client
	made     proto.Container
	uploaded []string // files uploaded for this run
}

// run creates the container, runs the command and cleans up. It checks the command line first, so that a mistake
// creates nothing.
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
	r.caught, stop = catchSignals()
	defer stop()
	if err := r.create(ctx); err != nil {
		return err
	}
	if r.exec.detach {
		return r.launch(ctx, cmd)
	}
	print := r.NewPrinter()
	at := &attachment{app: r.App, detachKeys: r.exec.leave, c: r.c, container: r.made.ID, cmd: cmd,
		print: print, caught: r.caught}
	res, err := at.run(ctx)
	if errors.Is(err, errDetached) {
		return at.addContinueHint(err) // the container stays for its command, also with --rm
	}
	if r.rm || !at.started { // a container that never ran a command is useless
		r.deleteMade(ctx)
	}
	if err != nil {
		return err
	}
	return concludeExec(r.App, res, print)
}

// interruptible runs do until the user interrupts it. It is for the time before there is a command to signal.
func (r *runner) interruptible(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, stop := app.UntilSignal(ctx, syscall.SIGHUP)
	defer stop()
	err := do(ctx)
	// Return the interruption even if do succeeded: the user does not want the command any more.
	if cause := context.Cause(ctx); errors.Is(cause, app.ErrInterrupted) {
		return cause
	}
	return err
}

// create creates the container. The user can interrupt it.
func (r *runner) create(ctx context.Context) (err error) {
	if r.c, err = r.NewClient(); err != nil {
		return err
	}
	err = r.interruptible(ctx, func(ctx context.Context) error {
		req, uploaded, err := r.container.request(ctx, r.App, r.c)
		// Set it also after an error, so that deleteMade deletes the uploads.
		r.uploaded = uploaded
		if err == nil {
			r.made, err = r.c.Create(ctx, req)
		}
		return err
	})
	if err != nil {
		r.deleteMade(ctx)
		return app.AddImageHint(r.App, err)
	}
	// Print the ID before the command runs, so that it is known even if berth is killed.
	if !r.Quiet && !r.exec.detach {
		fmt.Fprintln(r.Stderr, term.Printable(r.made.ID))
	}
	return nil
}

// launch starts the command in the background. The user can interrupt the start. It prints both IDs. The container's
// goes to standard output, because the command's can be found with it.
func (r *runner) launch(ctx context.Context, cmd proto.Cmd) error {
	var e proto.Exec
	err := r.interruptible(ctx, func(ctx context.Context) (err error) {
		e, err = r.c.Launch(ctx, r.made.ID, cmd)
		return err
	})
	if err != nil {
		r.deleteMade(ctx)
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

// deleteMade deletes what the run created, even after an interruption. It prints what it could not delete, because that
// still counts against the user's quota.
func (r *runner) deleteMade(ctx context.Context) {
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
