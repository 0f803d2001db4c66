package watch

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// WebhooksCommand returns `berth webhooks`.
func WebhooksCommand(a *app.App) *cobra.Command {
	return app.NewGroup(&cobra.Command{Use: "webhooks", Short: "URLs that events are posted to",
		Long: "URLs that events are posted to, in order and signed as Standard Webhooks says. `berth events` shows " +
			"the same events."},
		webhookCreateCommand(a), webhookListCommand(a), webhookInspectCommand(a), webhookEnableCommand(a),
		webhookRemoveCommand(a))
}

// webhookCreateCommand prints the secret, which cannot be read later.
func webhookCreateCommand(a *app.App) *cobra.Command {
	var req proto.CreateWebhook
	cmd := &cobra.Command{
		Use: "create [flags] URL", Short: "Have events posted to a URL; prints the ID and the secret",
		Args:    app.ArgCount(1, 1),
		Example: "  berth webhooks create --type exec.ended https://example.com/hook",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) (err error) {
			req.URL = args[0]
			if req.ContainerID != "" {
				if req.ContainerID, err = a.FindContainer(ctx, c, req.ContainerID); err != nil {
					return err
				}
			}
			made, err := c.CreateWebhook(ctx, req)
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.PrintJSON(made)
			}
			return a.PrintIDs(made.ID, made.Secret)
		}),
	}
	cmd.Flags().StringArrayVar(&req.Types, "type", nil,
		"only this type, such as exec.ended; \"exec.\" means all that begin with it (may be repeated)")
	cmd.Flags().StringVar(&req.ContainerID, "container", "", "only events of this container")
	cmd.Flags().StringVar(&req.Description, "description", "", "what it is for")
	app.CompleteFlag(cmd, "type", proto.FeedTypes...)
	return a.AddFormatFlags(cmd)
}

func webhookListCommand(a *app.App) *cobra.Command {
	return app.Noun[proto.Webhook]{
		ListShort: "List webhooks", Quiet: "print IDs only",
		List: (*client.Client).Webhooks,
		Columns: term.Columns[proto.Webhook]{
			Head: []string{"ID", "STATE", "TYPES", "URL", "LAST DELIVERY"},
			Row: func(w proto.Webhook) []string {
				state := "enabled"
				switch {
				case !w.Enabled:
					state = "disabled"
				case w.FailingSince != nil:
					state = "failing"
				}
				last := "-"
				if n := len(w.Deliveries); n > 0 {
					d := w.Deliveries[n-1]
					last = fmt.Sprintf("%s, %d %s", term.Ago(d.At.Time), d.Status, d.Error)
				}
				return []string{w.ID, state, strings.Join(w.Types, " "), w.URL, strings.TrimSpace(last)}
			},
		},
	}.ListCommand(a)
}

func webhookInspectCommand(a *app.App) *cobra.Command {
	return a.AddFormatFlags(&cobra.Command{
		Use: "inspect WEBHOOK", Short: "Print a webhook and its last deliveries as JSON", Args: app.ArgCount(1, 1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			w, err := c.Webhook(ctx, args[0])
			return a.PrintDetails(w, err)
		}),
	})
}

func webhookEnableCommand(a *app.App) *cobra.Command {
	off := false
	cmd := &cobra.Command{
		Use: "enable WEBHOOK", Short: "Continue with the first event that was not delivered, at once",
		Args: app.ArgCount(1, 1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			on := !off
			w, err := c.ChangeWebhook(ctx, args[0], proto.ChangeWebhook{Enabled: &on})
			return a.PrintResult(w, w.ID, err)
		}),
	}
	cmd.Flags().BoolVar(&off, "off", false, "disable it instead")
	return a.AddFormatFlags(cmd)
}

func webhookRemoveCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "rm WEBHOOK…", Short: "Remove webhooks", Args: app.ArgCount(1, -1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			return app.EachName(ctx, args, func(id string) error {
				if err := c.DeleteWebhook(ctx, id); err != nil {
					return err
				}
				return a.PrintIDs(id)
			})
		}),
	}
}
