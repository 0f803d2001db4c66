package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// Flags are the flags for the external tools that a container's code may call.
type Flags struct {
	names []string
	whole string
}

// Register adds the flags to a command.
func (f *Flags) Register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.names, "code-tool", nil, "tool that code in the container may call: NAME, or NAME:review "+
		"if each call needs approval (may be repeated; default none)")
	fs.StringVar(&f.whole, "code-tools", "", "settings of tools that code may call, as JSON or @FILE: allow, "+
		"max_calls, timeout_seconds, provider")
}

// Request builds the request from the flags.
func (f *Flags) Request() (c proto.CodeTools, err error) {
	for _, text := range f.names {
		name, approval, _ := strings.Cut(text, ":")
		c.Allow = append(c.Allow, proto.AllowedTool{Name: name, Approval: approval})
	}
	if f.whole == "" {
		return c, nil
	}
	if len(f.names) > 0 {
		return c, proto.Errorf(proto.InvalidArgument, "", "code-tools", "--code-tools and --code-tool exclude each "+
			"other; list the names under allow")
	}
	text := json.RawMessage(f.whole)
	if name, ok := strings.CutPrefix(f.whole, "@"); ok {
		if text, err = readBlock(name); err != nil {
			return c, err
		}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, proto.Errorf(proto.InvalidArgument, "", "code-tools", "--code-tools is not what it should be: %v",
			err)
	}
	return c, nil
}

// CallsCommand returns `berth calls`.
func CallsCommand(a *app.App) *cobra.Command {
	return app.NewGroup(&cobra.Command{Use: "calls", Short: "Calls of tools by code in a container",
		Long: `Calls of tools outside a container, made by code in it.

A container whose code may call tools was created with --code-tool. Each call of a tool under review waits for
a person's approval. "berth calls ls CONTAINER --state parked" lists the waiting calls.`},
		callListCommand(a), callShowCommand(a), callApproveCommand(a), callRefuseCommand(a))
}

func callListCommand(a *app.App) *cobra.Command {
	var f client.CallFilter
	cmd := &cobra.Command{
		Use: "ls [flags] CONTAINER", Aliases: []string{"list"}, Short: "List calls, newest first", Args: app.ArgCount(
			1, 1),
		ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, container string, _ []string) error {
			list, err := c.ToolCalls(ctx, container, f)
			if err != nil {
				return err
			}
			return term.PrintList(&a.Output, list, term.Columns[proto.ToolCall]{Head: []string{"ID", "TOOL", "STATE",
				"ASKED", "TOOK", "COMMAND", "INPUT", "ERROR"}, Row: callRow})
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.State, "state", "", "only calls in this state, such as parked")
	fs.StringVar(&f.Exec, "exec", "", "only calls of this command")
	fs.IntVar(&f.Limit, "limit", 0, "maximum number of entries, 1 to 100 (default 20)")
	app.CompleteFlag(cmd, "state", proto.ToolCallStates...)
	return a.AddListFlags(a.AddQuietFlag(cmd, "print IDs only"))
}

func callRow(call proto.ToolCall) []string {
	took, what := "-", ""
	if call.EndedAt != nil {
		took = call.EndedAt.Sub(call.CreatedAt.Time).Round(time.Millisecond).String()
	}
	if call.Error != nil {
		what = call.Error.Type + ": " + call.Error.Message
	}
	return []string{call.ID, call.Tool, string(call.State), term.Ago(call.CreatedAt.Time), took, call.ExecID,
		term.Short(string(call.Input), 40), term.Short(what, 40)}
}

func callShowCommand(a *app.App) *cobra.Command {
	return a.AddFormatFlags(&cobra.Command{
		Use: "show CONTAINER CALL", Short: "Show a call, as JSON", Args: app.ArgCount(2, 2),
		ValidArgsFunction: completeCalls(a, ""),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, container string, args []string) error {
			return a.PrintDetails(c.ToolCall(ctx, container, args[1]))
		}),
	})
}

func callApproveCommand(a *app.App) *cobra.Command {
	return a.AddFormatFlags(&cobra.Command{
		Use: "approve CONTAINER CALL", Short: "Approve a call", Args: app.ArgCount(2, 2),
		ValidArgsFunction: completeCalls(a, proto.CallParked),
		Long: "Approve a call that waits for approval. The approval is valid for this call with the shown input " +
			"only. The audit log records it with the API key.",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, container string, args []string) error {
			call, err := c.ApproveToolCall(ctx, container, args[1])
			return a.PrintResult(call, call.ID, err)
		}),
	})
}

func callRefuseCommand(a *app.App) *cobra.Command {
	var why proto.Refusal
	cmd := &cobra.Command{
		Use: "refuse [flags] CONTAINER CALL", Short: "Refuse a call that waits for approval; its code gets a " +
			"PermissionError", Args: app.ArgCount(2, 2), ValidArgsFunction: completeCalls(a, proto.CallParked),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, container string, args []string) error {
			call, err := c.RefuseToolCall(ctx, container, args[1], why)
			return a.PrintResult(call, call.ID, err)
		}),
	}
	cmd.Flags().StringVar(&why.Reason, "reason", "", "reason to give to the code that made the call")
	return a.AddFormatFlags(cmd)
}

// completeCalls suggests a container, then its calls in the given state.
func completeCalls(a *app.App, state proto.ToolCallState) cobra.CompletionFunc {
	list := func(c *client.Client, ctx context.Context, container string) ([]proto.ToolCall, error) {
		return c.ToolCalls(ctx, container, client.CallFilter{State: string(state)})
	}
	return app.CompleteListOf(a, list, func(call proto.ToolCall) cobra.Completion {
		return app.Suggestion(call.ID, call.Tool, string(call.State), term.Ago(call.CreatedAt.Time))
	})
}
