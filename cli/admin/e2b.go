package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/e2b/access"
	"berth/cli/app"
	"berth/client"
)

// E2BCommand returns `berth e2b`.
func E2BCommand(a *app.App) *cobra.Command {
	return app.NewGroup(&cobra.Command{Use: "e2b", Short: "Clients of E2B: let them use this daemon"}, e2bEnvCommand(a))
}

func e2bEnvCommand(a *app.App) *cobra.Command {
	domain := ""
	cmd := &cobra.Command{
		Use: "env", Short: "Print the environment that has E2B's SDKs use this daemon", Args: app.ArgCount(0, 0),
		Long: `Print the environment that has E2B's SDKs use this daemon, as lines for a shell.

By default the SDKs get two URLs. That needs SDKs from 2.7.0 on, and no DNS. With --domain they get a domain: api.NAME
and all names below NAME must lead to the daemon, which must have a certificate for them. The lines have an API key.`,
		Example: `  eval "$(berth e2b env)"
  berth e2b env --domain sandboxes.example.org:8443`,
		RunE: a.WithClient(func(_ context.Context, c *client.Client, _ []string) error {
			lines := [][2]string{{"E2B_API_KEY", access.SpellKey(c.Key())}}
			if domain != "" {
				lines = append(lines, [2]string{"E2B_DOMAIN", domain})
			} else {
				lines = append(lines, [2]string{"E2B_API_URL", c.Host()}, [2]string{"E2B_SANDBOX_URL", c.Host()})
			}
			if a.CA != "" {
				lines = append(lines, [2]string{"SSL_CERT_FILE", a.CA}, [2]string{"NODE_EXTRA_CA_CERTS", a.CA})
			}
			for _, l := range lines {
				if _, err := fmt.Fprintf(a.Stdout, "export %s=%s\n", l[0], quoted(l[1])); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&domain, "domain", "", "NAME[:PORT] that the SDKs reach the daemon at, over HTTPS")
	return cmd
}

// quoted quotes a value for a shell.
func quoted(value string) string { return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'" }
