package cli

import (
	"context"

	"berth/cmd/berth/internal/attack"
	"berth/cmd/berth/internal/client"

	"github.com/spf13/cobra"
)

// attackCommand is `berth attack`.
func (a *app) attackCommand() *cobra.Command {
	var o attack.Options
	cmd := &cobra.Command{
		Use: "attack", Short: "Attack the daemon and its containers, and say what got through", Args: takes(0, 0),
		RunE: a.do(func(ctx context.Context, c *client.Client, _ []string) error {
			return attack.Run(ctx, o, func(attack.Report) {})
		}),
	}
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "leave out what takes long")
	return a.jsonFlag(cmd)
}
