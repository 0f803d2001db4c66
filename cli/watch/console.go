package watch

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/client"
	"berth/proto"
)

// ConsoleCommand returns `berth console`.
func ConsoleCommand(a *app.App) *cobra.Command {
	quiet := false
	cmd := &cobra.Command{
		Use: "console [flags]", Short: "Open the web console in a browser", Args: app.ArgCount(0, 0),
		Long: "Print a link that opens the web console, and open it in the browser of this machine if there is one. " +
			"The link is good for one minute and for one browser. The browser then stays logged in for a week, until " +
			"it logs out or the API key ends.",
		Example: "  berth console\n  berth console --host https://berth.example.org:7117 --no-open",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			link, err := c.ConsoleLink(ctx)
			if err != nil {
				return err
			}
			at := c.Host() + link.Path
			if a.JSON {
				return a.PrintJSON(struct {
					URL       string     `json:"url"`
					ExpiresAt proto.Time `json:"expires_at"`
				}{at, link.ExpiresAt})
			}
			fmt.Fprintln(a.Stdout, at)
			if !quiet {
				browse(ctx, at)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&quiet, "no-open", false, "only print the link")
	return a.AddFormatFlags(cmd)
}
