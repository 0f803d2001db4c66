package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// execCommand is `berth exec`. It does not go through do: signals are the command's here, not the program's.
func execCommand(a *app.App) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use: "exec [flags] CONTAINER COMMAND [ARG…]", Short: "Run a command in a container",
		Long: `Run a command in a container and stream its output. The exit status is the command's.

A stopped container is started. With --shell the command runs in a shell that keeps its directory and variables for the next one.
Signals are passed on; the third interrupt gives up on a command that ignores them, and the daemon ends it.

With --idempotency-key the command goes on without berth. When the daemon is restarted, berth waits for it and goes on where it was; and without -t
an interrupt, SIGTERM or SIGHUP is not passed on and ends berth alone, while "berth kill" ends the command. The same command line again finds the
same run: its output from the beginning, and its exit status. Both need the input of -i, if there is any, to have been passed on.`,
		Example: `  berth exec -it CONTAINER bash
  berth exec --shell main CONTAINER cd /tmp
  berth exec -c 'ls | wc -l' CONTAINER
  berth exec --idempotency-key build-42 -c 'make all' CONTAINER
  tar c . | berth exec -i CONTAINER tar x -C /workspace`,
		Args: app.ArgCount(1, -1), ValidArgsFunction: a.CompleteContainers(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.NewClient()
			if err != nil {
				return err
			}
			return execCommandLine(cmd.Context(), a, c, f, args)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.key, "idempotency-key", "", "run the command at most once: the same key with the same "+
		"command names the same run")
	cmd.Flags().StringVar(&f.shell, "shell", "", "name of a persistent shell to run it in; the first use creates it")
	cmd.Flags().StringArrayVar(&f.secrets, "secret", nil, secretUsage)
	cmd.Flags().StringArrayVarP(&f.env, "env", "e", nil,
		"environment variable: NAME=value, or NAME for its value here (may be repeated)")
	return a.AddJSONFlag(a.AddQuietFlag(cmd, "print the command's output only"))
}

// execCommandLine runs one command in a container that is there. With a terminal and no command, bash is meant.
// The command line is read before the container is looked for, so that a mistake in it asks
// nothing of the daemon.
func execCommandLine(ctx context.Context, a *app.App, c *client.Client, f execFlags, args []string) error {
	if f.tty && len(args) == 1 && f.text == "" {
		args = append(args, "bash")
	}
	cmd, err := f.command(args[1:])
	if err != nil {
		return err
	}
	container, err := a.FindContainer(ctx, c, args[0])
	if err != nil {
		return err
	}
	if f.detach {
		e, err := c.Launch(ctx, container, cmd)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(e)
		}
		return a.PrintIDs(e.ID)
	}
	print := newPrinter(a)
	// A live connection and no plain request: signals, input and output have to travel both ways
	// at once.
	caught, stop := catch()
	at := &attachment{c: c, container: container, cmd: cmd, print: print, caught: caught}
	res, err := at.run(ctx)
	stop()
	// Without a key the command ended with the connection, so there is nothing to come back to. Nobody knows how much
	// it had of an input that broke off, and it would wait for the rest for ever.
	if f.key != "" && at.exec != "" && app.IsDaemonGone(err) && !at.owed.Load() {
		res, err = rejoinExec(ctx, a, at)
	}
	if err != nil {
		return at.left(err)
	}
	return concludeExec(a, res, print)
}

// rejoinExec goes on with a command that outlived its daemon: its output from where it was, and then its result.
// Signals are berth's own from here on, and the command goes on when they end it. The daemon may take a while to come
// back; patiently says so once and waits.
func rejoinExec(ctx context.Context, a *app.App, at *attachment) (res proto.ExecResult, err error) {
	ctx, stop := app.UntilSignal(ctx)
	defer stop()
	if err := followLogs(ctx, a, at.c, at.container, at.exec, at.print); err != nil {
		return res, app.WithSignal(ctx, err)
	}
	err = a.RetryWhileDown(ctx, func() (on bool, err error) {
		res, err = at.c.Wait(ctx, at.container, at.exec)
		return false, err
	})
	return res, app.WithSignal(ctx, err)
}

// newPrinter prints a command's output here, or nowhere if the result will be printed as JSON.
// The result that is printed as JSON holds the output already.
func newPrinter(a *app.App) *printer {
	if a.JSON {
		return &printer{}
	}
	return &printer{out: a.Stdout, err: a.Stderr}
}

// concludeExec says what there is to be said about a command that has ended, and becomes its exit status.
func concludeExec(a *app.App, res proto.ExecResult, print *printer) error {
	if a.JSON {
		if err := a.PrintJSON(res); err != nil {
			return err
		}
		return ended(res.Exec)
	}
	end := res.Exec.End
	// What a command itself decided needs no words: an exit status is passed on, and a signal
	// shows in it.
	if end != nil && end.Reason != proto.EndExit && end.Reason != proto.EndSignal && end.Reason != proto.EndNotStarted {
		fmt.Fprintf(a.Stderr, "berth: the command ended early (%s): %s\n", term.Printable(string(end.Reason)),
			term.Printable(end.Message))
	}
	if !a.Quiet {
		printRemarks(a, res)
	}
	err := ended(res.Exec)
	if missed := print.missed(); missed != "" {
		return warnIncomplete(a, missed+": they came faster than they could be printed; --max-output has the daemon keep "+
			"more, and `berth cp` loses nothing", err)
	}
	return err
}

// warnIncomplete tells of output that is missing, even if quiet: that is a failure and no remark. err is how it ended
// otherwise.
func warnIncomplete(a *app.App, what string, err error) error {
	fmt.Fprintln(a.Stderr, "berth: "+what)
	if err == nil && !term.IsTerminal(os.Stdout) {
		return app.ExitError{Status: app.StatusFailed} // what reads our output must not take it for all of it
	}
	return err
}

// printRemarks tells of files that the command made, and of what the daemon notes.
// They go to standard error: standard output is the command's alone.
func printRemarks(a *app.App, res proto.ExecResult) {
	if r := res.Result.Result; r != nil {
		for _, out := range r.Content {
			fmt.Fprintln(a.Stderr, "berth: stored an output as "+term.Printable(out.FileID))
		}
	}
	for _, n := range res.Notes {
		fmt.Fprintln(a.Stderr, "berth: "+term.Printable(n))
	}
}

// ended turns how a command ended into the exit status. Nil is success.
// 125 stands for what was no exit of the command's own, so that a script never takes a lost
// command for one that returned 0.
func ended(e proto.Exec) error {
	switch {
	case e.End == nil || e.End.ReturnCode < 0 || e.End.ReturnCode > 255:
		return app.ExitError{Status: app.StatusFailed}
	case e.End.ReturnCode == 0 && e.End.Reason != proto.EndExit:
		return app.ExitError{Status: app.StatusFailed}
	case e.End.ReturnCode != 0:
		return app.ExitError{Status: e.End.ReturnCode}
	}
	return nil
}

// psCommand is `berth ps`. Commands that ended are shown too: their output and status are still there to ask for.
// What has ended is forgotten in time: the daemon remembers a number of them for each container.
func psCommand(a *app.App) *cobra.Command {
	var running bool
	cmd := &cobra.Command{
		Use: "ps CONTAINER", Short: "List running and finished commands of a container", Args: app.ArgCount(1, 1),
		ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := a.FindContainer(ctx, c, args[0])
			if err != nil {
				return err
			}
			list, err := c.Execs(ctx, id)
			if err != nil {
				return err
			}
			return printExecs(a, list, running)
		}),
	}
	cmd.Flags().BoolVar(&running, "running", false, "running commands only")
	return a.AddJSONFlag(a.AddQuietFlag(cmd, "print IDs only"))
}

// printExecs prints a list in the form that was asked for, with the oldest first, so that the newest is next to the
// prompt. A command that runs shows how long it has taken so far.
func printExecs(a *app.App, list []proto.Exec, running bool) error {
	// Never nil: --json prints [] and not null.
	shown := []proto.Exec{}
	for _, e := range list {
		if !running || e.State == proto.ExecRunning {
			shown = append(shown, e)
		}
	}
	if a.JSON {
		return a.PrintJSON(shown)
	}
	var rows [][]string
	for _, e := range shown {
		if a.Quiet {
			if err := a.PrintIDs(e.ID); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			e.ID, term.EndText(e), term.Ago(e.StartedAt.Time), units.HumanDuration(max(0, e.Duration(time.Now()))), e.JobID,
			term.Short(term.CommandText(e), 60),
		})
	}
	if a.Quiet {
		return nil
	}
	return a.Table([]string{"ID", "STATE", "STARTED", "TOOK", "JOB", "COMMAND"}, rows)
}

// killCommand is `berth kill`. The default is docker's, and the one signal that nothing survives.
// The default ends all that the command started, its background processes included.
func killCommand(a *app.App) *cobra.Command {
	var signal string
	cmd := &cobra.Command{
		Use: "kill [flags] CONTAINER EXEC", Short: "Send a signal to a command", Args: app.ArgCount(2, 2),
		ValidArgsFunction: a.CompleteExecs,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			container, exec, err := a.FindContainerAndExec(ctx, c, args)
			if err != nil {
				return err
			}
			// Signals are typed in any case; the daemon knows them in capitals, with and without
			// SIG.
			e, err := c.Signal(ctx, container, exec, strings.ToUpper(signal))
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(e)
			}
			return a.PrintIDs(e.ID)
		}),
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", "SIGKILL", "name of the signal; SIGKILL ends the whole process tree")
	return a.AddJSONFlag(cmd)
}

// waitCommand is `berth wait`. The return code is its output and not its status, as with docker: a script can then
// tell a command that failed from a wait that did.
func waitCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait CONTAINER [EXEC]", Short: "Wait for a command to end and print its return code", Args: app.ArgCount(1, 2),
		ValidArgsFunction: a.CompleteExecs,
		Long: "Wait for a command to end, by default the newest, and print its return code, as docker does. " +
			"Interpreters of `berth code --context` do not count as the newest.",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			container, exec, err := a.FindContainerAndExec(ctx, c, args)
			if err != nil {
				return err
			}
			var res proto.ExecResult
			err = a.RetryWhileDown(ctx, func() (on bool, err error) {
				res, err = c.Wait(ctx, container, exec)
				return false, err
			})
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(res)
			}
			// What never ran has no return code. -1 is none that a command could have.
			code := -1
			if res.Exec.End != nil {
				code = res.Exec.End.ReturnCode
			}
			return a.PrintIDs(strconv.Itoa(code))
		}),
	}
	return a.AddJSONFlag(cmd)
}

// logsCommand is `berth logs`.
// It prints what the daemon kept, also of a command that ended long ago or whose client went away.
func logsCommand(a *app.App) *cobra.Command {
	var follow bool
	stream := "both"
	cmd := &cobra.Command{
		Use: "logs [flags] CONTAINER [EXEC]", Short: "Print the output of a command", Args: app.ArgCount(1, 2),
		ValidArgsFunction: a.CompleteExecs,
		Long: "Print the output of a command, by default the newest: standard output to standard output, standard " +
			"error to standard error. Interpreters of\n`berth code --context` do not count as the newest.",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			print := newPrinter(a)
			// Checked before anything is asked of the daemon. What is not wanted is left out by
			// having nowhere to go.
			switch stream {
			case "both":
			case "stdout":
				print.err = nil
			case "stderr":
				print.out = nil
			default:
				return proto.Errorf(proto.InvalidArgument, "", "stream", "--stream is stdout, stderr or both, not %q",
					stream)
			}
			container, exec, err := a.FindContainerAndExec(ctx, c, args)
			if err != nil {
				return err
			}
			return showLogs(ctx, a, c, container, exec, print, follow)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the command ends")
	cmd.Flags().StringVar(&stream, "stream", stream, "stdout, stderr or both")
	return cmd
}

// showLogs prints what there is. A live connection tells the two streams in the order they came; what runs on and is
// not to be followed is read stream by stream, since nobody knows when a live connection has given all there was.
func showLogs(ctx context.Context, a *app.App, c *client.Client, container, exec string, print *printer, follow bool) error {
	e, err := c.Exec(ctx, container, exec)
	if err != nil {
		return err
	}
	if follow || e.State == proto.ExecEnded {
		err = followLogs(ctx, a, c, container, exec, print)
	} else {
		err = snapshot(ctx, c, container, exec, print)
	}
	if missed := print.missed(); missed != "" && err == nil {
		fmt.Fprintf(a.Stderr, "berth: %s: the daemon keeps the beginning and the end of long outputs\n", missed)
	}
	return err
}

// snapshot prints what each stream has given so far. The order between the two is lost.
// What is left out by --stream is not even asked for.
func snapshot(ctx context.Context, c *client.Client, container, exec string, print *printer) error {
	// Streams count from 1 in package proto.
	for i, w := range []io.Writer{print.out, print.err} {
		if w == nil {
			continue
		}
		body, start, err := c.Logs(ctx, container, exec, proto.Stream(i+1).String())
		if err != nil {
			return err
		}
		// The log begins where the kept output does, so what lies before it is lost.
		print.lost[i] = start
		_, err = io.Copy(w, body)
		body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// followLogs follows an exec to its end. A connection that breaks, as it does when a pager pauses for long or the
// daemon is restarted, is made anew from where it was. What is printed by then is not asked for again: the printer
// knows how far each stream has come.
func followLogs(ctx context.Context, a *app.App, c *client.Client, container, exec string, print *printer) error {
	// Kept apart from what patiently sees: an error that is the end, such as a printer that is
	// full, must not look like a daemon that went away.
	var last error
	err := a.RetryWhileDown(ctx, func() (on bool, err error) {
		// Any byte more is progress, and gives the daemon its full time to come back again.
		before := print.had
		end, err := attach(ctx, c, container, exec, print)
		if end {
			last = err
			return false, nil
		}
		return print.had != before, err
	})
	if err != nil {
		return err
	}
	return last
}

// attach follows an exec on one connection, and reports whether it came to the end.
// end is true for whatever a new connection would not mend: the exit, an error of the daemon's
// words, or output that cannot be written here.
func attach(ctx context.Context, c *client.Client, container, exec string, print *printer) (end bool, err error) {
	live, err := c.Live(ctx, container)
	if err != nil {
		return false, err
	}
	defer live.Close()
	// From where the last connection broke off, so nothing is printed twice.
	if err := live.Attach(execRef, exec, print.had[0], print.had[1]); err != nil {
		return false, err
	}
	for {
		ev, err := live.Next(ctx)
		switch {
		case err != nil:
			return false, err
		case ev.Type == proto.EventExit:
			return true, nil
		case ev.Type == proto.EventError:
			return true, ev.Error
		}
		if err := print.event(ev); err != nil {
			return true, err
		}
	}
}
