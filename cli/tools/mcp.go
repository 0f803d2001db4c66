package tools

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/client"
)

// MCPCommand returns `berth mcp`. Its standard output carries only the protocol.
func MCPCommand(a *app.App) *cobra.Command {
	var container, image string
	var confinement flags.Confinement
	cmd := &cobra.Command{
		Use: "mcp", Short: "Serve the Model Context Protocol on standard input and output", Args: app.ArgCount(0, 0),
		Long: `Connect a client of the Model Context Protocol, such as a desktop application, to the daemon. The client starts
this program and talks to it over standard input and output. A client that speaks HTTP does not need it: it uses the
daemon's URL followed by /mcp.

In a session of the protocol, which its versions up to 2025-11-25 have, the tools bash,
str_replace_based_edit_tool, run_code, upload_file, download_file, find_files, grep_files, save_snapshot,
restore_snapshot and list_snapshots share one container. It is created at its first use and deleted when the client
ends this program. With --container they use that container, which stays.
Version 2026-07-28 has no sessions: each call names its container in the argument container, and the first call with a
new name creates it. With --container, calls without a name use that container.
code_executor and your stored tools get a new container for each call.`,
		Example: `  # in the client's list of servers
  {"mcpServers": {"berth": {"command": "berth", "args": ["mcp", "--api-key-file", "/home/me/berth-key"]}}}`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if container != "" {
				if container, err = a.FindContainer(ctx, c, container); err != nil {
					return err
				}
			}
			asked, err := confinement.Request()
			if err != nil {
				return err
			}
			b := &client.Bridge{Client: c, Container: container, Image: image, Confinement: asked}
			b.Note = func(text string) {
				fmt.Fprintln(a.Stderr, "berth: "+term.PrintableLines(text))
			}
			// A signal is no error: clients send one if berth does not exit soon after they close standard input.
			if err := b.Run(ctx, os.Stdin, a.Stdout); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&container, "container", "", "use this container instead of a new one, unless a call names another")
	f.StringVar(&image, "image", "", "image of new containers")
	confinement.Register(cmd)
	cmd.MarkFlagsMutuallyExclusive("container", "image")
	_ = cmd.RegisterFlagCompletionFunc("container", a.CompleteContainers(-1))
	_ = cmd.RegisterFlagCompletionFunc("image", a.CompleteImages())
	return cmd
}
