package code

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/code/picture"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// Command returns `berth code`.
func Command(a *app.App) *cobra.Command {
	f := &codeFlags{}
	cmd := &cobra.Command{
		Use: "code [flags] [CONTAINER] [FILE]", Short: "Run code and print the value of its last expression",
		Args: app.ArgCount(0, 2), ValidArgsFunction: completeCode(a),
		Long: `Run code. Print its output and the value of its last expression.

Without CONTAINER the code runs in a new container, which is deleted afterwards. With --context it runs as a cell of an
interpreter that keeps its variables for the next cell. The code is FILE, the text of -c, or standard input.

If the code fails, the exit status is the code's own, or else 1. It is 125 if output is missing: the daemon keeps 1 MiB
of each stream, so write long output to files in $OUTPUT_DIR.

Figures are drawn in terminals that can (kitty, iTerm2, sixel; see --draw) and written to files with --figures.

The output of a cell is printed while it runs. Without --context it is printed at the end, and an interrupt loses it.

FILE may be a notebook of Jupyter (.ipynb). Its cells run one after the other, until one fails that is not tagged
raises-exception. --output writes the notebook with their outputs, and --json prints it.

Languages: ` + strings.Join(proto.CodeLanguages, ", ") +
			`. Without --language the extension of FILE decides; otherwise it is python.`,
		Example: `  berth code -c '6*7'
  berth code --figures . plot.py
  berth code --context main CONTAINER -c 'x = 1'
  berth code --output done.ipynb analysis.ipynb
  echo 'console.log(process.version)' | berth code --language js`,
	}
	cmd.RunE = a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
		f.given = cmd.Flags().Changed("code")
		return runCode(ctx, a, c, f, args)
	})
	f.register(cmd)
	app.CompleteFlag(cmd, "language", proto.CodeLanguages...)
	app.CompleteFlag(cmd, "draw", picture.Protocols...)
	_ = cmd.RegisterFlagCompletionFunc("image", a.CompleteImages())
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "print the command's output only"))
}

// codeFlags say which code to run and how.
type codeFlags struct {
	language, context, text, image, figures string
	draw                                    string // protocol for figures in the terminal
	output                                  string // where a notebook is written with its outputs
	given                                   bool   // -c was given, even if empty
	env, secrets, secretHosts               []string
	network                                 flags.Network
	confinement                             flags.Confinement
	timeout                                 time.Duration
}

func (f *codeFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&f.language, "language", "L", "", "language of the code")
	fs.StringVar(&f.context, "context", "", "run it as a cell of this context of CONTAINER; the first use creates it")
	fs.StringVarP(&f.text, "code", "c", "", "run this text in place of a file")
	fs.StringVar(&f.image, "image", "", "image of the new container (default: the daemon's)")
	f.network.Register(cmd)
	f.confinement.Register(cmd)
	fs.StringVar(&f.figures, "figures", "",
		"write images among the results to this directory; it is created if necessary")
	fs.StringVar(&f.draw, "draw", string(picture.Auto), "draw figures in the terminal by this `PROTOCOL`: auto, none, "+
		"kitty, iterm, sixel")
	fs.StringVarP(&f.output, "output", "o", "", "write a notebook with its outputs to this file")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable: NAME=value, or NAME for its value here (may "+
		"be repeated)")
	fs.StringArrayVar(&f.secrets, "secret", nil, flags.SecretUsage)
	fs.StringArrayVar(&f.secretHosts, "secret-host", nil, flags.SecretHostUsage)
	fs.DurationVar(&f.timeout, "timeout", 0, "time limit (default: the daemon's)")
}

// byExtension maps file extensions to languages.
var byExtension = map[string]string{".py": "python", ".js": "js", ".mjs": "js", ".cjs": "js", ".ts": "ts", ".mts": "ts",
	".r": "r", ".java": "java", ".jsh": "java", ".sh": "bash", ".bash": "bash", ".c": "c", ".cc": "cpp",
	".cpp": "cpp", ".f90": "fortran", ".go": "go", ".rs": "rust", ".php": "php"}

// runCode runs the code and prints its outcome.
func runCode(ctx context.Context, a *app.App, c *client.Client, f *codeFlags, args []string) error {
	if !slices.Contains(picture.Protocols, picture.Protocol(f.draw)) {
		return proto.Errorf(proto.InvalidArgument, "", "draw", "--draw %q is not auto, none, kitty, iterm or sixel",
			f.draw)
	}
	if f.given && f.text == "" {
		return proto.Errorf(proto.InvalidArgument, "", "code", "there is nothing to run; give code with -c, name a "+
			"file, or leave out -c for standard input")
	}
	container, file, err := codeArgs(ctx, a, c, f, args)
	if err != nil {
		return err
	}
	if isNotebook(file) {
		return runNotebook(ctx, a, c, f, container, file)
	}
	if f.output != "" {
		return proto.Errorf(proto.InvalidArgument, "", "output", "--output is for notebooks; redirect the output of "+
			"other code with >")
	}
	text, err := f.source(file)
	if err != nil {
		return err
	}
	language := f.language
	if language == "" {
		language = byExtension[strings.ToLower(filepath.Ext(file))]
	}
	confinement, err := f.confinement.Request()
	if err != nil {
		return err
	}
	env, err := flags.Env(f.env)
	if err != nil {
		return err
	}
	if f.context != "" {
		if !confinement.IsZero() {
			return proto.Errorf(proto.InvalidArgument, "", "context", "--class and limits are for a new container; "+
				"leave them out with --context")
		}
		return runCell(ctx, a, c, f, container, proto.Cell{Code: text, Language: language, Env: env,
			TimeoutSeconds: f.timeout.Seconds()})
	}
	req := proto.Program{Code: text, Language: language, Container: container, Image: f.image, Env: env,
		Network: f.network.Request(), TimeoutSeconds: f.timeout.Seconds()}
	req.Confinement = confinement
	if req.Secrets, err = flags.Secrets(f.secrets); err != nil {
		return err
	}
	if req.NetworkSecrets, err = flags.SecretHosts(f.secretHosts, req.Secrets); err != nil {
		return err
	}
	if err := f.makeRoom(); err != nil {
		return err
	}
	res, err := c.RunCode(ctx, req)
	if err != nil {
		return err
	}
	return reportOutcome(a, res, f, nil)
}

// codeArgs splits the arguments into container and file. A single argument is the container if the code comes from
// elsewhere. Otherwise it is a file, if a file of that name exists.
func codeArgs(ctx context.Context, a *app.App, c *client.Client, f *codeFlags, args []string) (container, file string,
	err error) {
	switch {
	case len(args) == 2 && f.text != "":
		return "", "", proto.Errorf(proto.InvalidArgument, "", "code", "-c is the code; %q is too much", args[1])
	case len(args) == 2:
		container, file = args[0], args[1]
	case len(args) == 1 && f.text == "" && (args[0] == "-" || isFile(args[0])):
		file = args[0]
	case len(args) == 1:
		container = args[0]
	}
	if container == "" && f.context != "" {
		return "", "", proto.Errorf(proto.InvalidArgument, "", "context", "a context belongs to a container; name "+
			"it before the file")
	}
	if container == "" {
		return "", file, nil
	}
	id, err := a.FindContainer(ctx, c, container)
	// more often a mistyped file name
	if err != nil && len(args) == 1 && f.text == "" && app.IsNotFound(err, container) {
		err = app.WithHint(proto.Errorf(proto.NotFound, "", container, "there is neither a file %q here nor a "+
			"container of that name", container), "`berth ls` lists containers")
	}
	return id, file, err
}

func isFile(name string) bool {
	fi, err := os.Stat(name)
	return err == nil && !fi.IsDir()
}

// source returns the code from -c, a file or standard input.
func (f *codeFlags) source(file string) (string, error) {
	if f.text != "" {
		return f.text, nil
	}
	text, err := app.ReadInput(cmp.Or(file, "-"), proto.MaxCode) // the daemon reports code that is too large
	return string(text), err
}

// makeRoom creates the directory for figures. It runs before the code does: an error after the run would lose the
// figures.
func (f *codeFlags) makeRoom() error {
	if f.figures == "" {
		return nil
	}
	if err := os.MkdirAll(f.figures, 0o755); err != nil {
		return fmt.Errorf("nothing was run, as the directory for --figures cannot be made: %w", err)
	}
	return nil
}

// runCell runs the code in a context and prints its output as it comes.
func runCell(ctx context.Context, a *app.App, c *client.Client, f *codeFlags, container string, cell proto.Cell) error {
	if len(f.secrets) > 0 || f.image != "" || !f.network.Request().IsZero() {
		return proto.Errorf(proto.InvalidArgument, "", "context", "--secret, --image, --network and --allow "+
			"are for a fresh interpreter; leave them out with --context")
	}
	if err := f.makeRoom(); err != nil {
		return err
	}
	print := a.NewPrinter()
	res, err := c.RunCell(ctx, container, f.context, cell, printTo(print))
	if err != nil {
		return err
	}
	return reportOutcome(a, res, f, print)
}

// printTo prints the output of a cell as it comes.
func printTo(print *term.Printer) func(proto.Progress) error {
	return func(p proto.Progress) error {
		return print.Print(proto.Event{Type: proto.EventType(p.Type), Stream: p.Stream, Offset: p.Offset,
			Until: p.Until, Data: p.Data, DataBase64: p.DataBase64})
	}
}

// reportOutcome prints the outcome of code, saves its figures and returns the exit status. It saves figures last: a
// failed write then hides nothing else. If the code failed, the status is the code's own.
func reportOutcome(a *app.App, res proto.Outcome, f *codeFlags, printed *term.Printer) error {
	err := printOutcome(a, res, printed)
	lost := errors.Join(f.drawFigures(a, res), saveFigures(a, res, f.figures))
	var exit app.ExitError
	switch {
	case lost == nil:
		return err
	case errors.As(err, &exit): // an ExitError has no message
		fmt.Fprintln(a.Stderr, "berth: "+term.PrintableLines(lost.Error()))
		return err
	}
	return errors.Join(err, lost)
}

// printOutcome prints the outcome of code and returns the exit status. It prints the output too, unless printed did
// that already.
func printOutcome(a *app.App, res proto.Outcome, printed *term.Printer) error {
	if a.JSON {
		if err := a.PrintJSON(res); err != nil {
			return err
		}
		return failed(res)
	}
	if printed == nil {
		if err := printLogs(a, res.Logs); err != nil {
			return err
		}
	}
	for _, text := range res.Results {
		if _, err := fmt.Fprintln(a.Stdout, cleaned(text)); err != nil {
			return err
		}
	}
	if res.Error != "" {
		fmt.Fprintln(a.Stderr, cleaned(res.Error))
	}
	if !a.Quiet {
		for _, out := range res.Files {
			fmt.Fprintln(a.Stderr, "berth: stored an output as "+term.Printable(out.FileID))
		}
		for _, n := range res.Notes {
			fmt.Fprintln(a.Stderr, "berth: "+term.Printable(n))
		}
	}
	const whole = "; what code writes into $OUTPUT_DIR is stored whole"
	switch {
	case printed == nil && res.Truncated:
		return a.WarnIncomplete("some of the output or of the results is missing: the daemon keeps the beginning and "+
			"the end of long ones"+whole, failed(res))
	// Truncated only describes the part that was kept.
	case printed != nil && printed.Missed() != "":
		return a.WarnIncomplete(printed.Missed()+": they came faster than they could be printed"+whole, failed(res))
	}
	return failed(res)
}

// printLogs prints all output of the code, each stream to its own file descriptor.
func printLogs(a *app.App, logs proto.Logs) error {
	if _, err := io.WriteString(a.Stdout, strings.Join(logs.Stdout, "")); err != nil {
		return err
	}
	_, err := io.WriteString(a.Stderr, strings.Join(logs.Stderr, ""))
	return err
}

// cleaned returns a text of several lines without control characters. It keeps spaces, because they align columns.
func cleaned(s string) string {
	parts := strings.Split(strings.ReplaceAll(s, "\t", "    "), "\n")
	for i, p := range parts {
		parts[i] = term.Printable(p)
	}
	return strings.Join(parts, "\n")
}

// failed returns the exit status of failed code: its own, or 1.
func failed(res proto.Outcome) error {
	switch d := res.ErrorDetail; {
	case d == nil:
		return nil
	case d.ReturnCode != nil && *d.ReturnCode > 0 && *d.ReturnCode < 256:
		return app.ExitError{Status: *d.ReturnCode}
	}
	return app.ExitError{Status: 1}
}

// completeCode suggests containers and local files.
func completeCode(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		all, _ := a.CompleteContainers(1)(cmd, args, toComplete)
		return all, cobra.ShellCompDirectiveDefault
	}
}

// ContextsCommand returns `berth contexts`.
func ContextsCommand(a *app.App) *cobra.Command {
	contexts := app.Noun[proto.CodeContext]{
		ListShort: "List a container's contexts", ListOf: (*client.Client).Contexts,
		Columns: term.Columns[proto.CodeContext]{
			Head: []string{"NAME", "LANGUAGE", "STATE", "CELLS", "USED", "NOTE"},
			Row: func(n proto.CodeContext) []string {
				return []string{n.Name, n.Language, n.State, fmt.Sprint(n.Cells), term.Ago(n.LastUsedAt.Time), n.Note}
			},
		},
	}
	return app.NewGroup(&cobra.Command{Use: "contexts", Aliases: []string{"context"},
		Short: "Contexts: interpreters that keep their variables"}, contexts.ListCommand(a),
		contextCommand(a, "rm", "Delete a context and end its interpreter", (*client.Client).DeleteContext),
		contextCommand(a, "interrupt", "Interrupt the cell that runs in a context, as Ctrl-C does",
			(*client.Client).InterruptContext),
		contextCommand(a, "restart", "Restart a context's interpreter; its variables are lost",
			(*client.Client).RestartContext))
}

// contextCommand returns a command that changes a context and prints its name.
func contextCommand(a *app.App, name, short string, change func(*client.Client, context.Context, string,
	string) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " CONTAINER CONTEXT", Short: short, Args: app.ArgCount(2, 2),
		ValidArgsFunction: app.CompleteListOf(a, (*client.Client).Contexts, func(n proto.CodeContext) cobra.Completion {
			return app.Suggestion(n.Name, n.Language, n.State)
		}),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			if err := change(c, ctx, id, args[1]); err != nil {
				return err
			}
			return a.PrintIDs(args[1])
		}),
	}
}
