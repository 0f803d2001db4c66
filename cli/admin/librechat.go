package admin

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/client"
)

// LibreChatCommand returns `berth librechat`.
func LibreChatCommand(a *app.App) *cobra.Command {
	return app.NewGroup(&cobra.Command{Use: "librechat", Short: "LibreChat: let its code tools use this daemon"},
		libreChatEnvCommand(a))
}

func libreChatEnvCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print the environment that has LibreChat run code here", Args: app.ArgCount(0, 0),
		Long: `Print the environment that has LibreChat, and its library @librechat/agents, run code in this daemon, as lines
for a shell. LIBRECHAT_CODE_BASEURL has the API key in its path, since new versions send none; LIBRECHAT_CODE_API_KEY
is for old versions, which want one. The daemon takes the key out of the path before it logs anything. A proxy in front
may log paths: use HTTPS to the daemon itself, or have the proxy leave them out.`,
		Example: `  eval "$(berth librechat env)"`,
		RunE: a.WithClient(func(_ context.Context, c *client.Client, _ []string) error {
			lines := [][2]string{
				{"LIBRECHAT_CODE_BASEURL", c.Host() + "/librechat/" + url.PathEscape(c.Key()) + "/v1"},
				{"LIBRECHAT_CODE_API_KEY", c.Key()}}
			if a.CA != "" {
				lines = append(lines, [2]string{"NODE_EXTRA_CA_CERTS", a.CA})
			}
			for _, l := range lines {
				if _, err := fmt.Fprintf(a.Stdout, "export %s=%s\n", l[0], quoted(l[1])); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}
