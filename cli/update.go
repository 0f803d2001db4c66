package cli

import (
	"context"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// updateCommand returns `berth update`, which has docker's name for it.
func updateCommand(a *app.App) *cobra.Command {
	var limits flags.Confinement
	var lease flags.Lease
	var labels, gone []string
	var idle time.Duration
	cmd := &cobra.Command{
		Use: "update [flags] CONTAINER", Short: "Change labels, limits and lease of a container",
		Args: app.ArgCount(1, 1), ValidArgsFunction: a.CompleteContainers(1),
		Long: `Change labels, limits and lease of a container, also while it runs.

Limits of CPU, memory, disk and processes hold at once. A limit below the present use is refused. Open files, and
processes under gvisor, change with the next start.

The lease says when the container ends and what happens then. --ends may be earlier than before, and --ends 0s ends the
lease now.`,
		Example: "  berth update --memory 1g --cpus 0.5 --label stage=done CONTAINER\n" +
			"  berth update --lease absolute --ends 2h --at-end pause CONTAINER",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, _ []string) error {
			confined, err := limits.Request()
			if err != nil {
				return err
			}
			req := proto.ChangeContainer{Limits: confined.Limits}
			if req.IdleTimeoutSeconds, err = term.ParseSeconds("idle", idle); err != nil {
				return err
			}
			if req.Lease, err = lease.Request(); err != nil {
				return err
			}
			if len(labels)+len(gone) > 0 {
				if req.Labels, err = newLabels(ctx, c, id, labels, gone); err != nil {
					return err
				}
			}
			con, err := c.Change(ctx, id, req)
			return a.PrintResult(con, con.ID, err)
		}),
	}
	limits.RegisterLimits(cmd)
	lease.Register(cmd)
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "label to set, key=value (may be repeated)")
	cmd.Flags().StringArrayVar(&gone, "remove-label", nil, "key of a label to remove (may be repeated)")
	cmd.Flags().DurationVar(&idle, "idle", 0, "idle time after which a rolling lease ends, such as 30m")
	return a.AddJSONFlag(cmd)
}

// newLabels returns the container's labels with some set and others removed.
func newLabels(ctx context.Context, c *client.Client, id string, set, gone []string) (map[string]string, error) {
	con, err := c.Container(ctx, id)
	if err != nil {
		return nil, err
	}
	labels, err := flags.Labels(set)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	maps.Copy(all, con.Labels)
	maps.Copy(all, labels)
	for _, key := range gone {
		delete(all, key)
	}
	return all, nil
}
