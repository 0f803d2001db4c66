package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
)

// GCCommand returns `berth gc`. It needs an admin's key, because it sweeps the items of all owners.
func GCCommand(a *app.App) *cobra.Command {
	var strangers bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove what has expired now", Args: app.ArgCount(0, 0),
		Long: "Run all sweeps of the daemon now. The daemon also runs them periodically.\n\n" +
			"After a restore from a backup, the ledger may not know some workspaces. They are moved aside and\n" +
			"removed after 7 days. --strangers removes them now.",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			counts, err := c.Sweep(ctx, strangers)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(counts)
			}
			var rows [][]string
			// Sorted, so that two runs are easy to compare.
			for _, sweep := range slices.Sorted(maps.Keys(counts)) {
				for _, what := range slices.Sorted(maps.Keys(counts[sweep])) {
					rows = append(rows, []string{sweep, what, fmt.Sprint(counts[sweep][what])})
				}
			}
			return a.Table([]string{"SWEEP", "WHAT", "COUNT"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&strangers, "strangers", false,
		"also remove the workspaces that were moved aside because the ledger does not know them")
	return a.AddFormatFlags(cmd)
}

// versions is the output of `berth version`. Daemon is nil if none answers. The error is shown beside the client's
// version, because users run this command when nothing works.
type versions struct {
	Client string       `json:"client"`
	Host   string       `json:"host"`
	Daemon *client.Info `json:"daemon"`
	Error  string       `json:"error,omitempty"`
}

// VersionCommand returns `berth version`. It succeeds without a daemon, because users often run it then. Client and
// daemon may differ by one version: the API reports unknown fields and keys.
func VersionCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of this program and of the daemon", Args: app.ArgCount(0, 0),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			// The host is shown too: a daemon of the wrong version is often the wrong daemon.
			v := versions{Client: a.Config.Version, Host: c.Host()}
			info, err := c.Info(ctx)
			if err == nil {
				v.Daemon = &info
			} else {
				v.Error = err.Error()
			}
			if a.JSON {
				return a.PrintJSON(v)
			}
			return printVersions(a, v)
		}),
	}
	return a.AddFormatFlags(cmd)
}

// printVersions prints a line for each side. It removes control characters from the daemon's answer, since any server
// may answer at that address.
func printVersions(a *app.App, v versions) error {
	daemon := v.Error
	if v.Daemon != nil {
		daemon = fmt.Sprintf("%s at %s, classes %v, default image %s", v.Daemon.Version, v.Host,
			v.Daemon.RuntimeClasses, v.Daemon.DefaultImage)
	}
	_, err := fmt.Fprintf(a.Stdout, "client: %s\ndaemon: %s\n", v.Client, term.Printable(daemon))
	return err
}
