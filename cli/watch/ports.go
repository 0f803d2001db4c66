package watch

import (
	"cmp"
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/client"
)

// PortsCommand returns `berth ports`.
func PortsCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ports CONTAINER", Short: "List the ports that programs in a container listen on",
		Args: app.ArgCount(1, 1), ValidArgsFunction: a.CompleteContainers(1),
		Long: "List the ports that programs in a container listen on. A container that is stopped or paused has none, " +
			"and is not woken.",
		Example: "  berth ports CONTAINER",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, _ []string) error {
			list, err := c.Ports(ctx, id)
			if err != nil || a.JSON {
				return cmp.Or(err, a.PrintJSON(list))
			}
			var rows [][]string
			for _, p := range list {
				pid := "-"
				if p.PID != 0 {
					pid = strconv.Itoa(p.PID)
				}
				rows = append(rows, []string{strconv.Itoa(int(p.Port)), p.Address, pid, cmp.Or(p.Program, "-")})
			}
			return a.Table([]string{"PORT", "ADDRESS", "PID", "PROGRAM"}, rows)
		}),
	}
	return a.AddJSONFlag(cmd)
}
