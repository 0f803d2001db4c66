package data

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
)

// WorkspacesCommand is `berth workspaces`.
// There is no command that makes one: a workspace comes with its first container and is kept by
// `berth rm --keep-workspace`.
func WorkspacesCommand(a *app.App) *cobra.Command {
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List workspaces, newest first", Args: app.ArgCount(0, 0),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Workspaces(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(term.NotNil(all))
			}
			rows := make([][]string, len(all))
			for i, w := range all {
				// A workspace has one container at most; without one it can be deleted or given to
				// another.
				used := w.ContainerID
				if used == "" {
					used = "-"
				}
				rows[i] = []string{w.ID, term.Ago(w.CreatedAt.Time), used}
			}
			return a.Table([]string{"ID", "CREATED", "CONTAINER"}, rows)
		}),
	}
	remove := &cobra.Command{
		Use: "rm WORKSPACE…", Aliases: []string{"delete"}, Short: "Delete workspaces with their files",
		Args: app.ArgCount(1, -1), ValidArgsFunction: a.CompleteWorkspaces,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			// IDs only, whole: a workspace has no name, and what is deleted does not come back.
			var errs []error
			for _, id := range args {
				err := c.DeleteWorkspace(ctx, id)
				if err == nil {
					err = a.PrintIDs(id)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}),
	}
	return app.NewGroup(&cobra.Command{Use: "workspaces", Aliases: []string{"workspace"},
		Short: "Workspaces: files that outlive containers"}, a.AddJSONFlag(list), remove)
}
