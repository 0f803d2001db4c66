package watch

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// ApprovalsCommand returns `berth approvals`.
func ApprovalsCommand(a *app.App) *cobra.Command {
	return app.NewGroup(&cobra.Command{Use: "approvals", Short: "What waits for a person's decision",
		Long: `What waits for a person's decision: connections of containers to hosts that are not on their lists,
calls of tools by code in containers, and runs of stored tools.

Connections wait in containers made with --ask. A decision about them counts once, or with --for life for the
container's life. Once means the connections that wait, and others to the same host and port until the commands have
ended that run when it is made.`},
		approvalListCommand(a), approvalShowCommand(a), approveCommand(a), refuseCommand(a))
}

func approvalListCommand(a *app.App) *cobra.Command {
	var f client.ApprovalFilter
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List what waits, newest first", Args: app.ArgCount(0, 0),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			if f.Container != "" {
				id, err := a.FindContainer(ctx, c, f.Container)
				if err != nil {
					return err
				}
				f.Container = id
			}
			list, err := c.Approvals(ctx, f)
			if err != nil {
				return err
			}
			return term.PrintList(&a.Output, list, term.Columns[proto.Approval]{Head: []string{"ID", "KIND", "WHAT",
				"CONTAINER", "ASKED", "LEFT", "CONNECTIONS", "INPUT"}, Row: approvalRow})
		}),
	}
	fs := cmd.Flags()
	fs.StringVar((*string)(&f.Kind), "kind", "", "only approvals of this kind: network, tool_call or tool_run")
	fs.StringVar(&f.Container, "container", "", "only approvals of this container")
	fs.IntVar(&f.Limit, "limit", 0, "maximum number of entries, 1 to 100 (default 100)")
	app.CompleteFlag(cmd, "kind", proto.ApprovalKinds...)
	return a.AddListFlags(a.AddQuietFlag(cmd, "print IDs only"))
}

func approvalRow(v proto.Approval) []string {
	left, conns := "-", "-"
	if v.ExpiresAt != nil {
		left = max(0, time.Until(v.ExpiresAt.Time)).Round(time.Second).String()
	}
	if v.Kind == proto.ApprovalNetwork {
		conns = strconv.Itoa(v.Connections)
	}
	return []string{v.ID, string(v.Kind), v.Item, cmp.Or(v.ContainerID, "-"), term.Ago(v.CreatedAt.Time), left, conns,
		term.Short(string(v.Input), 40)}
}

func approvalShowCommand(a *app.App) *cobra.Command {
	return a.AddFormatFlags(&cobra.Command{
		Use: "show APPROVAL", Short: "Show an approval, as JSON", Args: app.ArgCount(1, 1),
		ValidArgsFunction: completeApprovals(a),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			return a.PrintDetails(c.Approval(ctx, args[0]))
		}),
	})
}

// scopeUsage describes the flag --for.
const scopeUsage = "how long it counts for connections: once or life (default once)"

func approveCommand(a *app.App) *cobra.Command {
	var how proto.Approving
	cmd := &cobra.Command{
		Use: "approve [flags] APPROVAL", Short: "Let what waits go on", Args: app.ArgCount(1, 1),
		ValidArgsFunction: completeApprovals(a),
		Long: "Let what waits go on. With --for life, a host becomes an entry of its container's list. The audit log " +
			"records the decision with the API key.",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			v, err := c.Approve(ctx, args[0], how)
			return a.PrintResult(v, v.ID, err)
		}),
	}
	cmd.Flags().StringVar((*string)(&how.For), "for", "", scopeUsage)
	app.CompleteFlag(cmd, "for", proto.ScopeOnce, proto.ScopeLife)
	return a.AddFormatFlags(cmd)
}

func refuseCommand(a *app.App) *cobra.Command {
	var how proto.Refusing
	cmd := &cobra.Command{
		Use: "refuse [flags] APPROVAL", Short: "Refuse what waits", Args: app.ArgCount(1, 1),
		ValidArgsFunction: completeApprovals(a),
		Long: "Refuse what waits. With --for life, a host becomes an entry of its container's network.deny, and " +
			"is refused without asking from then on.",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			v, err := c.Refuse(ctx, args[0], how)
			return a.PrintResult(v, v.ID, err)
		}),
	}
	cmd.Flags().StringVar((*string)(&how.For), "for", "", scopeUsage)
	cmd.Flags().StringVar(&how.Reason, "reason", "", "why, for the program and the audit log")
	app.CompleteFlag(cmd, "for", proto.ScopeOnce, proto.ScopeLife)
	return a.AddFormatFlags(cmd)
}

// completeApprovals suggests what waits.
func completeApprovals(a *app.App) cobra.CompletionFunc {
	list := func(c *client.Client, ctx context.Context) ([]proto.Approval, error) {
		return c.Approvals(ctx, client.ApprovalFilter{})
	}
	return app.CompleteList(a, list, func(v proto.Approval) cobra.Completion {
		return app.Suggestion(v.ID, string(v.Kind), v.Item, term.Ago(v.CreatedAt.Time))
	})
}
