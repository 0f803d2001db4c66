package data

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	xterm "golang.org/x/term"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// maxPasswordInput bounds a password from standard input, in bytes. The daemon has a bound of its own.
const maxPasswordInput = 64 << 10

// imageLoginCommand returns `berth image login`.
func imageLoginCommand(a *app.App) *cobra.Command {
	var req proto.SetRegistry
	var fromInput bool
	cmd := &cobra.Command{
		Use: "login [flags] REGISTRY", Short: "Give the daemon credentials for a registry", Args: app.ArgCount(1, 1),
		Long: `Give the daemon credentials for a registry, for pulls, pushes and the base images of builds. The registry is
asked whether it takes them. The daemon seals the password and shows it to nobody. docker.io is Docker Hub.`,
		Example: `  berth image login -u me ghcr.io
  printenv TOKEN | berth image login -u me --password-stdin registry.example.com:5000`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if req.Password, err = readPassword(a, fromInput); err != nil {
				return err
			}
			set, err := c.SetRegistry(ctx, args[0], req)
			return a.PrintResult(set, set.Host, err)
		}),
	}
	cmd.Flags().StringVarP(&req.Username, "username", "u", "", "user name")
	cmd.Flags().BoolVar(&fromInput, "password-stdin", false, "read the password or token from standard input")
	_ = cmd.MarkFlagRequired("username") // the flag exists
	return a.AddFormatFlags(cmd)
}

// readPassword reads a password from standard input, or from the terminal without showing it.
func readPassword(a *app.App, fromInput bool) (string, error) {
	if fromInput {
		text, err := app.ReadInput("-", maxPasswordInput)
		return strings.TrimRight(string(text), "\r\n"), err
	}
	fd := int(os.Stdin.Fd())
	if !xterm.IsTerminal(fd) {
		return "", errors.New("there is no terminal to ask for a password; use --password-stdin")
	}
	fmt.Fprint(a.Stderr, "Password: ")
	text, err := xterm.ReadPassword(fd)
	fmt.Fprintln(a.Stderr)
	return string(text), err
}

// imageLogoutCommand returns `berth image logout`.
func imageLogoutCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "logout REGISTRY…", Short: "Make the daemon forget its credentials for registries",
		Args: app.ArgCount(1, -1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			return app.EachName(ctx, args, func(host string) error {
				if err := c.RemoveRegistry(ctx, host); err != nil {
					return err
				}
				return a.PrintIDs(host)
			})
		}),
	}
}

// imageRegistriesCommand returns `berth image registries`.
func imageRegistriesCommand(a *app.App) *cobra.Command {
	cmd := app.Noun[proto.Registry]{
		ListShort: "List the registries that the daemon has credentials for", Quiet: "print hosts only",
		List: (*client.Client).Registries,
		Columns: term.Columns[proto.Registry]{
			Head: []string{"REGISTRY", "USER", "SET"},
			Row: func(r proto.Registry) []string {
				return []string{r.Host, term.Printable(r.Username), term.Ago(r.UpdatedAt.Time)}
			},
		},
	}.ListCommand(a)
	cmd.Use, cmd.Aliases = "registries", nil
	return cmd
}

// imagePushCommand returns `berth image push`.
func imagePushCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "push IMAGE [REF]", Short: "Push an image to a registry", Args: app.ArgCount(1, 2),
		Long: `Push an image to the registry that its name says, or under another name. "berth image login" gives the daemon
credentials.`,
		Example: "  berth image push tools ghcr.io/me/tools:1",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			req := proto.PushImage{Name: args[0]}
			if len(args) > 1 {
				req.Ref = args[1]
			}
			bar := a.NewProgress()
			defer bar.End()
			img, err := c.PushImage(ctx, req, bar.Image)
			bar.End()
			return a.PrintResult(img, img.Name, err)
		}),
	}
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}
