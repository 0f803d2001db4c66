package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// StoredCommand returns `berth tools`. `berth tool` is for a model's tool-use blocks.
func StoredCommand(a *app.App) *cobra.Command {
	tools := toolNoun(a)
	return app.NewGroup(&cobra.Command{Use: "tools", Short: "Stored tools: code that is stored once and run many times",
		Long: `Stored tools: code that is stored once and run many times. Its input is checked against a schema.

A tool is JSON with "name", "tool_type": "code_runner" and a "configuration". Its code is Python that defines
run(input). Runs of a tool with "approval_action": "review" wait for a person's approval.`},
		tools.ListCommand(a), storedCreateCommand(a), storedShowCommand(a), storedUpdateCommand(a),
		tools.RemoveCommand(a),
		storedRunCommand(a), runsCommand(a), approveCommand(a), refuseCommand(a))
}

func storedCreateCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Store a tool and print its ID", Args: app.ArgCount(1, 1),
		Long: `Store a tool and print its ID. FILE is the tool's JSON; "-" is standard input.`,
		Example: "  berth tools create media_probe.json\n  berth tools run media_probe --input '{\"path\": " +
			"\"/workspace/a.mp4\"}'",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			body, err := readBlock(args[0])
			if err != nil {
				return err
			}
			created, err := c.CreateTool(ctx, body)
			return printNewTool(a, created, err)
		}),
	}
	return a.AddFormatFlags(cmd)
}

// printNewTool prints a new tool or version. Its notes are for people and go to standard error.
func printNewTool(a *app.App, t proto.Tool, err error) error {
	if !a.JSON {
		for _, note := range t.Notes {
			fmt.Fprintln(a.Stderr, term.Printable(note))
		}
	}
	return a.PrintResult(t, t.ID, err)
}

func storedShowCommand(a *app.App) *cobra.Command {
	var version int64
	var all bool
	cmd := &cobra.Command{
		Use: "show [flags] TOOL", Short: "Show a tool, as JSON, or list its versions", Args: app.ArgCount(1, 1),
		ValidArgsFunction: completeTools(a),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			if all {
				list, err := c.ToolVersions(ctx, args[0])
				if err != nil {
					return err
				}
				return term.PrintList(&a.Output, list, toolColumns)
			}
			return a.PrintDetails(c.Tool(ctx, args[0], version))
		}),
	}
	cmd.Flags().Int64Var(&version, "version", 0, "version to show (default: the current one)")
	cmd.Flags().BoolVarP(&all, "versions", "a", false, "list all versions, newest first")
	return a.AddFormatFlags(cmd)
}

func storedUpdateCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "update TOOL FILE", Short: "Make a new version of a tool", Args: app.ArgCount(2, 2),
		ValidArgsFunction: completeTools(a),
		Long: `Make a new version of a tool. FILE is JSON with the members to change: "description", "configuration" or
"approval_action"; "-" is standard input. A configuration without env_variables keeps the present ones.`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			body, err := readBlock(args[1])
			if err != nil {
				return err
			}
			changed, err := c.ChangeTool(ctx, args[0], body)
			return printNewTool(a, changed, err)
		}),
	}
	return a.AddFormatFlags(cmd)
}

// storedRunCommand returns `berth tools run`. The tool's result goes to standard output, its logs and errors to
// standard error.
func storedRunCommand(a *app.App) *cobra.Command {
	var req proto.ToolRunRequest
	var input string
	var confinement flags.Confinement
	cmd := &cobra.Command{
		Use: "run [flags] TOOL", Short: "Run a tool and print its result", Args: app.ArgCount(1, 1),
		ValidArgsFunction: completeTools(a),
		Long: `Run a tool and print its result as JSON. If the run needs approval, its ID is printed and the exit status is 0.
If the run fails, the exit status is 1.`,
		Example: "  berth tools run media_probe --input '{\"path\": \"/workspace/a.mp4\"}'\n  berth tools run " +
			"media_probe --input @input.json --container work",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if req.Input, err = readInput(input); err != nil {
				return err
			}
			if req.Confinement, err = confinement.Request(); err != nil {
				return err
			}
			if req.Container != "" {
				if req.Container, err = a.FindContainer(ctx, c, req.Container); err != nil {
					return err
				}
			}
			for i, name := range req.Files {
				if req.Files[i], err = a.FindFile(ctx, c, name); err != nil {
					return err
				}
			}
			run, err := c.RunTool(ctx, args[0], req)
			return reportRun(a, run, err)
		}),
	}
	fs := cmd.Flags()
	fs.StringVarP(&input, "input", "i", "{}", "its input: JSON, or @FILE; @- is standard input")
	fs.Int64Var(&req.Version, "version", 0, "version to show (default: the current one)")
	fs.StringVar(&req.Container, "container", "", "run in this container (default: one that is made for the run)")
	fs.StringVar(&req.Image, "image", "", "image of the container that is made")
	confinement.Register(cmd)
	fs.StringSliceVar(&req.Files, "file", nil, "stored file to put into $INPUT_DIR, by its ID or its filename (may "+
		"be repeated)")
	fs.BoolVarP(&req.Background, "detach", "d", false, "print the run's ID as soon as it starts")
	_ = cmd.RegisterFlagCompletionFunc("container", a.CompleteContainers(-1))
	_ = cmd.RegisterFlagCompletionFunc("image", a.CompleteImages())
	_ = cmd.RegisterFlagCompletionFunc("file", a.CompleteFiles())
	return a.AddFormatFlags(cmd)
}

func readInput(text string) (json.RawMessage, error) {
	if name, ok := strings.CutPrefix(text, "@"); ok {
		return readBlock(name)
	}
	if !json.Valid([]byte(text)) {
		return nil, proto.Errorf(proto.InvalidArgument, "", "input", "--input is not JSON; write --input "+
			"'{\"field\": 1}', or --input @FILE")
	}
	return json.RawMessage(text), nil
}

// reportRun prints a run. If the run failed, the exit status says so. It returns err if there is no run.
func reportRun(a *app.App, run proto.ToolRun, err error) error {
	switch {
	case err != nil:
		return err
	case a.JSON:
		err = a.PrintJSON(run)
	default:
		err = printRun(a, run)
	}
	if err == nil && run.State.Over() && run.State != proto.RunSucceeded {
		err = app.ExitError{Status: 1}
	}
	return err
}

func printRun(a *app.App, run proto.ToolRun) error {
	if !run.State.Over() {
		if run.State == proto.RunParked {
			fmt.Fprintf(a.Stderr, "the run waits for approval: berth tools approve %s\n", run.ID)
		}
		return a.PrintIDs(run.ID)
	}
	for _, lines := range [][]string{run.Logs.Stdout, run.Logs.Stderr, run.Notes} {
		for _, line := range lines {
			fmt.Fprintln(a.Stderr, term.Printable(strings.TrimRight(line, "\r\n")))
		}
	}
	for _, f := range run.Files {
		fmt.Fprintf(a.Stderr, "made %s\n", f.FileID)
	}
	if e := run.Error; e != nil {
		for line := range strings.Lines(e.Traceback) {
			fmt.Fprintln(a.Stderr, term.Printable(strings.TrimRight(line, "\r\n")))
		}
		fmt.Fprintf(a.Stderr, "%s: %s: %s\n", run.State, e.Type, term.Printable(e.Message))
		return nil
	}
	return a.PrintJSON(run.Output)
}

func runsCommand(a *app.App) *cobra.Command {
	var f client.RunFilter
	var wait bool
	cmd := &cobra.Command{
		Use: "runs [flags] [RUN]", Short: "List runs of tools, newest first, or show one", Args: app.ArgCount(0, 1),
		ValidArgsFunction: completeRuns(a, ""),
		Example:           "  berth tools runs --state parked\n  berth tools runs --json run_…",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 1 {
				show := c.ToolRun
				if wait {
					show = c.AwaitToolRun
				}
				return a.PrintDetails(show(ctx, args[0]))
			}
			list, err := c.ToolRuns(ctx, f)
			if err != nil {
				return err
			}
			return term.PrintList(&a.Output, list, term.Columns[proto.ToolRun]{Head: []string{"ID", "TOOL", "VERSION",
				"STATE", "ASKED", "TOOK", "INPUT", "OUTPUT"}, Row: runRow})
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.Tool, "tool", "", "only runs of this tool")
	fs.StringVar(&f.State, "state", "", "only runs in this state: parked, running, succeeded, failed, refused, "+
		"expired or lost")
	fs.IntVar(&f.Limit, "limit", 0, "maximum number of entries, 1 to 100 (default 20)")
	fs.BoolVar(&wait, "wait", false, "wait until the run is over")
	_ = cmd.RegisterFlagCompletionFunc("tool", completeTools(a))
	app.CompleteFlag(cmd, "state", proto.ToolRunStates...)
	return a.AddListFlags(a.AddQuietFlag(cmd, "print IDs only"))
}

func runRow(r proto.ToolRun) []string {
	what := string(r.Output)
	if r.Error != nil {
		what = r.Error.Type + ": " + r.Error.Message
	}
	return []string{r.ID, r.Tool, strconv.FormatInt(r.Version, 10), string(r.State), term.Ago(r.CreatedAt.Time),
		fmt.Sprintf("%.0f ms", r.DurationMS), term.Short(string(r.Input), 40), term.Short(what, 40)}
}

func approveCommand(a *app.App) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "approve [flags] RUN", Short: "Let a run begin that waits for approval", Args: app.ArgCount(1, 1),
		ValidArgsFunction: completeRuns(a, proto.RunParked),
		Long: "Let a run begin that waits for approval. The approval is valid for this run only. The audit log " +
			"records it with the API key.",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			run, err := c.ApproveToolRun(ctx, args[0])
			if err == nil && wait {
				run, err = c.AwaitToolRun(ctx, run.ID)
			}
			return reportRun(a, run, err)
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the run is over, and print its result")
	return a.AddFormatFlags(cmd)
}

func refuseCommand(a *app.App) *cobra.Command {
	var why proto.Refusal
	cmd := &cobra.Command{
		Use: "refuse [flags] RUN", Short: "End a run that waits for approval", Args: app.ArgCount(1, 1),
		ValidArgsFunction: completeRuns(a, proto.RunParked),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			run, err := c.RefuseToolRun(ctx, args[0], why)
			return a.PrintResult(run, run.ID, err)
		}),
	}
	cmd.Flags().StringVar(&why.Reason, "reason", "", "reason to give to the caller of the tool")
	return a.AddFormatFlags(cmd)
}

// completeTools suggests stored tools.
func completeTools(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if cmd.Name() == "update" && len(args) == 1 {
			return nil, cobra.ShellCompDirectiveDefault // a local file
		}
		return app.CompleteList(a, (*client.Client).Tools, func(t proto.Tool) cobra.Completion {
			return app.Suggestion(t.Name, term.Short(t.Description, 60))
		})(cmd, args, toComplete)
	}
}

// completeRuns suggests runs in the given state.
func completeRuns(a *app.App, state proto.ToolRunState) cobra.CompletionFunc {
	return a.Suggest(func(ctx context.Context, c *client.Client, args []string) (all []cobra.Completion) {
		if len(args) > 0 {
			return nil
		}
		list, _ := c.ToolRuns(ctx, client.RunFilter{State: string(state)})
		for _, r := range list {
			all = append(all, app.Suggestion(r.ID, r.Tool, string(r.State), term.Ago(r.CreatedAt.Time)))
		}
		return all
	})
}

// toolNoun returns the commands that list and remove stored tools.
func toolNoun(a *app.App) app.Noun[proto.Tool] {
	return app.Noun[proto.Tool]{
		ListShort: "List stored tools, by name", List: (*client.Client).Tools, Quiet: "print names only",
		Columns:  toolColumns,
		Argument: "TOOL", RemoveShort: "Remove tools with their versions; their runs stay", Complete: completeTools(a),
		Remove: (*client.Client).DeleteTool,
	}
}

var toolColumns = term.Columns[proto.Tool]{
	Head: []string{"NAME", "ID", "VERSION", "APPROVAL", "CHANGED", "DESCRIPTION"}, Row: toolRow}

// toolRow returns the table row of a tool or of one of its versions.
func toolRow(t proto.Tool) []string {
	return []string{t.Name, t.ID, strconv.FormatInt(t.Version, 10), cmp.Or(t.ApprovalAction, "-"),
		term.Ago(t.UpdatedAt.Time), t.Description}
}
