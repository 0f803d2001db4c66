package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// execCommand returns `berth exec`. It does not use WithClient, because signals go to the command and not to berth.
func execCommand(a *app.App) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use: "exec [flags] CONTAINER COMMAND [ARG…]", SuggestFor: []string{"shell", "ssh"},
		Short: "Run a command in a container",
		Long: `Run a command in a container and stream its output. The exit status is the command's.

A stopped container is started first. With --shell the command runs in a persistent shell, which keeps its directory
and variables for the next command. Signals are passed on to the command. At the third interrupt berth stops waiting,
and the daemon ends the command.

With -t the command goes on when the connection breaks, when berth is killed, and after the --detach-keys; "berth
attach" continues with it. berth itself connects again where it can.

With --idempotency-key the command continues when berth ends:
  - If the daemon restarts, berth waits for it and then continues with the output.
  - Without -t, an interrupt, SIGTERM or SIGHUP ends berth and not the command; "berth kill" ends the command.
  - The same command line finds the same run again: its whole output and its exit status.
The first two need all input of -i to have been sent.`,
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
	cmd.Flags().StringArrayVar(&f.secrets, "secret", nil, flags.SecretUsage)
	cmd.Flags().StringArrayVarP(&f.env, "env", "e", nil,
		"environment variable: NAME=value, or NAME for its value here (may be repeated)")
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "print the command's output only"))
}

// execCommandLine runs one command in an existing container. With a terminal and no command, it runs bash. It parses
// the command line before it looks up the container, so that a mistake causes no request.
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
		return a.PrintResult(e, e.ID, err)
	}
	print := a.NewPrinter()
	// A live connection is needed, because signals, input and output travel in both directions at once.
	caught, stop := catchSignals()
	at := &attachment{app: a, c: c, container: container, cmd: cmd, print: print, caught: caught, detachKeys: f.leave}
	res, err := at.run(ctx)
	stop()
	// Without a key the command ended with the connection, so it cannot be rejoined. With unsent input it cannot
	// either: the daemon may have read any part of the input, and the command would wait for the rest forever.
	if f.key != "" && at.exec != "" && app.IsDaemonGone(err) && !at.stdinUnsent.Load() {
		res, err = rejoinExec(ctx, a, at)
	}
	if err != nil {
		return at.addContinueHint(err)
	}
	return concludeExec(a, res, print)
}

// rejoinExec continues with a command that outlived its daemon: first its remaining output, then its result. From
// then on signals go to berth; if they end berth, the command continues. The daemon may take a while to return.
// RetryWhileDown reports that once and waits.
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

// concludeExec prints remarks about a command that has ended, and returns its exit status.
func concludeExec(a *app.App, res proto.ExecResult, print *term.Printer) error {
	if a.JSON {
		if err := a.PrintJSON(res); err != nil {
			return err
		}
		return ended(res.Exec)
	}
	end := res.Exec.End
	// No message for an ending that the command chose itself: its exit status is passed on, and shows a signal too.
	if end != nil && end.Reason != proto.EndExit && end.Reason != proto.EndSignal && end.Reason != proto.EndNotStarted {
		fmt.Fprintf(a.Stderr, "berth: the command ended early (%s): %s\n", term.Printable(string(end.Reason)),
			term.Printable(end.Message))
	}
	if !a.Quiet {
		printRemarks(a, res)
	}
	err := ended(res.Exec)
	if missed := print.Missed(); missed != "" {
		return a.WarnIncomplete(missed+
			": they came faster than they could be printed; --max-output has the daemon keep "+
			"more, and `berth cp` loses nothing", err)
	}
	return err
}

// printRemarks prints the files that the command made and the daemon's notes. They go to standard error, because
// standard output is reserved for the command.
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

// ended converts the end of a command into an exit status. nil is success. 125 means that the command did not exit by
// itself, so a script never takes a lost command for a successful one.
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

// psCommand returns `berth ps`. It also shows ended commands, because their output and status are still available.
// The daemon remembers a limited number of them per container.
func psCommand(a *app.App) *cobra.Command {
	var running bool
	cmd := &cobra.Command{
		Use: "ps CONTAINER", Short: "List running and finished commands of a container", Args: app.ArgCount(1, 1),
		ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, _ []string) error {
			list, err := c.Execs(ctx, id)
			if err != nil {
				return err
			}
			if running {
				list = slices.DeleteFunc(list, func(e proto.Exec) bool { return e.State != proto.ExecRunning })
			}
			return term.PrintList(&a.Output, list, execColumns)
		}),
	}
	cmd.Flags().BoolVar(&running, "running", false, "running commands only")
	return a.AddListFlags(a.AddQuietFlag(cmd, "print IDs only"))
}

// execColumns are the tables of commands. For a running command they show the time so far.
var execColumns = term.Columns[proto.Exec]{
	Head: []string{"ID", "STATE", "PID", "STARTED", "TOOK", "JOB", "COMMAND"},
	Row: func(e proto.Exec) []string {
		return []string{e.ID, term.EndText(e), runningPID(e), term.Ago(e.StartedAt.Time),
			term.Took(e.Duration(time.Now())), e.JobID, term.CommandText(e)}
	},
	NarrowHead: []string{"ID", "STATE", "PID", "STARTED", "TOOK", "COMMAND"},
	NarrowRow: func(e proto.Exec) []string {
		return []string{app.ShortID(e.ID), term.EndText(e), runningPID(e), term.Brief(time.Since(e.StartedAt.Time)) +
			" ago", term.Took(e.Duration(time.Now())), term.Short(term.CommandText(e), 60)}
	},
}

// runningPID returns the process ID of a command that runs.
func runningPID(e proto.Exec) string {
	if e.PID > 0 && e.State == proto.ExecRunning {
		return strconv.Itoa(e.PID)
	}
	return "-"
}

// killCommand returns `berth kill`. The default signal is SIGKILL, as in docker. It ends all processes that the
// command started, including background processes.
func killCommand(a *app.App) *cobra.Command {
	var signal string
	cmd := &cobra.Command{
		Use: "kill [flags] CONTAINER EXEC", Short: "Send a signal to a command", Long: "Send a signal to a command, " +
			"named by its ID or by the process ID of a running one.", Args: app.ArgCount(2, 2),
		ValidArgsFunction: a.CompleteExecs(),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			container, exec, err := a.FindContainerAndExec(ctx, c, args)
			if err != nil {
				return err
			}
			// Users may type signals in any case. The daemon knows them in capitals, with and without SIG.
			e, err := c.Signal(ctx, container, exec, strings.ToUpper(signal))
			return a.PrintResult(e, e.ID, err)
		}),
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", "SIGKILL", "name of the signal; SIGKILL ends the whole process tree")
	return a.AddFormatFlags(cmd)
}

// waitCommand returns `berth wait`. It prints the return code and does not exit with it, as docker does. A script can
// then distinguish a failed command from a failed wait.
func waitCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait CONTAINER [EXEC]", Short: "Wait for a command to end and print its return code",
		Args: app.ArgCount(1, 2), ValidArgsFunction: a.CompleteExecs(),
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
			// A command that never ran has no return code. No command can return -1.
			code := -1
			if res.Exec.End != nil {
				code = res.Exec.End.ReturnCode
			}
			return a.PrintResult(res, strconv.Itoa(code), nil)
		}),
	}
	return a.AddFormatFlags(cmd)
}

// logsCommand returns `berth logs`. It prints the output that the daemon stored, even for a command that ended long ago
// or whose client disconnected.
func logsCommand(a *app.App) *cobra.Command {
	var f logFlags
	var since string
	stream := "both"
	cmd := &cobra.Command{
		Use: "logs [flags] CONTAINER [EXEC]", SuggestFor: []string{"follow", "tail"},
		Short: "Print the output of a command", Args: app.ArgCount(1, 2),
		ValidArgsFunction: a.CompleteExecs(),
		Long: "Print the output of a command, by default the newest: standard output to standard output, standard " +
			"error to standard error. Interpreters of\n`berth code --context` do not count as the newest." +
			"\n\nWith --since, print the output of all commands that ran at that time or later, in the order of " +
			"their start.",
		Example: "  berth logs -f --tail 20 CONTAINER\n  berth logs --since 10m CONTAINER",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			print := a.NewPrinter()
			// Checked before any request. A stream that is not wanted is discarded.
			switch stream {
			case "both":
			case "stdout":
				print.Stderr = nil
			case "stderr":
				print.Stdout = nil
			default:
				return proto.Errorf(proto.InvalidArgument, "", "stream", "--stream is stdout, stderr or both, not %q",
					stream)
			}
			if f.tail < 0 || f.tail > 10_000 {
				return proto.Errorf(proto.InvalidArgument, "", "tail", "--tail must be from 1 to 10000 lines, "+
					"or 0 for all, not %d", f.tail)
			}
			from, err := app.ParseMoment("since", since)
			if err != nil {
				return err
			}
			if !from.IsZero() && len(args) == 1 {
				return showLogsSince(ctx, a, c, args[0], from, print, f)
			}
			container, exec, err := a.FindContainerAndExec(ctx, c, args)
			if err != nil {
				return err
			}
			return showLogs(ctx, a, c, container, exec, print, f)
		}),
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "continue until the command ends")
	cmd.Flags().IntVarP(&f.tail, "tail", "n", 0, "only this many lines from the end of each stream; 0 is all")
	cmd.Flags().StringVar(&since, "since", "", "the output of all commands that ran since this time, such as "+
		"2006-01-02T15:04:05Z, or 2h for two hours ago")
	cmd.Flags().StringVar(&stream, "stream", stream, "stdout, stderr or both")
	return cmd
}

// logFlags say which part of an output to print.
type logFlags struct {
	follow bool
	tail   int // lines of each stream; 0 is all
}

// showLogsSince prints the output of all commands that ran at a time or later, except interpreters.
func showLogsSince(ctx context.Context, a *app.App, c *client.Client, name string, since time.Time,
	print *term.Printer, f logFlags) error {
	container, err := a.FindContainer(ctx, c, name)
	if err != nil {
		return err
	}
	all, err := c.Execs(ctx, container)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.EndedAt != nil && e.EndedAt.Before(since) || app.IsInterpreter(e) {
			continue
		}
		one := *print
		if err := showLogs(ctx, a, c, container, e.ID, &one, f); err != nil {
			return err
		}
	}
	return nil
}

// showLogs prints a command's output. A live connection keeps the order of the two streams. Without follow, a running
// command is read stream by stream instead, because a live connection does not show when all past output has come.
func showLogs(ctx context.Context, a *app.App, c *client.Client, container, exec string, print *term.Printer,
	f logFlags) error {
	e, err := c.Exec(ctx, container, exec)
	if err != nil {
		return err
	}
	whole := f.follow || e.State == proto.ExecEnded
	if !whole || f.tail > 0 {
		err = snapshot(ctx, c, container, exec, print, f.tail)
	}
	if err == nil && whole && (f.follow || f.tail == 0) {
		err = followLogs(ctx, a, c, container, exec, print)
	}
	if missed := print.Missed(); missed != "" && err == nil {
		fmt.Fprintf(a.Stderr, "berth: %s: the daemon keeps the beginning and the end of long outputs\n", missed)
	}
	return err
}

// snapshot prints the output so far of each stream. The order between the two is lost. It does not request a stream
// that --stream excludes.
//
// With tail it prints the last lines of each stream.
func snapshot(ctx context.Context, c *client.Client, container, exec string, print *term.Printer, tail int) error {
	// Stream numbers start at 1 in package proto.
	for i, w := range []io.Writer{print.Stdout, print.Stderr} {
		if w == nil {
			continue
		}
		body, start, err := c.TailLogs(ctx, container, exec, proto.Stream(i+1).String(), tail)
		if err != nil {
			return err
		}
		// The log starts at the first byte kept. The bytes before it are lost.
		if tail == 0 {
			print.Lost[i] = start
		}
		n, err := io.Copy(w, body)
		print.Had[i] = start + n
		body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// followLogs follows an exec to its end. It reconnects if the connection breaks, such as after a long pause of a
// pager or a restart of the daemon. It continues at the offsets of the printer, so no output is requested twice.
func followLogs(ctx context.Context, a *app.App, c *client.Client, container, exec string, print *term.Printer) error {
	// Separate from the error that RetryWhileDown sees: a final error, such as a full disk behind the printer, must
	// not look like a daemon that is down.
	var last error
	err := a.RetryWhileDown(ctx, func() (on bool, err error) {
		// Any new byte is progress, and restarts the time that the daemon has to return.
		before := print.Had
		end, err := attach(ctx, c, container, exec, print)
		if end {
			last = err
			return false, nil
		}
		return print.Had != before, err
	})
	if err != nil {
		return err
	}
	return last
}

// attach follows an exec on one connection. end is true if a new connection would not help: the command ended, the
// daemon returned an error, or output cannot be written.
func attach(ctx context.Context, c *client.Client, container, exec string, print *term.Printer) (end bool, err error) {
	live, err := c.Live(ctx, container)
	if err != nil {
		return false, err
	}
	defer live.Close()
	// Start where the last connection broke off, so that nothing is printed twice.
	if err := live.Attach(execRef, exec, print.Had[0], print.Had[1]); err != nil {
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
		if err := print.Print(ev); err != nil {
			return true, err
		}
	}
}
