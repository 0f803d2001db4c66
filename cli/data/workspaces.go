package data

import (
	"cmp"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// WorkspacesCommand returns `berth workspaces`. No command creates a workspace: its first container does, and `berth
// rm --keep-workspace` keeps it. Workspaces have no names, and rm accepts only whole IDs.
func WorkspacesCommand(a *app.App) *cobra.Command {
	workspaces := app.Noun[proto.Workspace]{
		ListShort: "List workspaces, newest first", List: (*client.Client).Workspaces,
		Columns: term.Columns[proto.Workspace]{
			Head: []string{"ID", "CREATED", "CONTAINER"},
			Row: func(w proto.Workspace) []string {
				return []string{w.ID, term.Ago(w.CreatedAt.Time), cmp.Or(w.ContainerID, "-")}
			},
		},
		Argument: "WORKSPACE", RemoveShort: "Delete workspaces with their files", Complete: a.CompleteWorkspaces(),
		Remove: (*client.Client).DeleteWorkspace,
	}
	return app.NewGroup(&cobra.Command{Use: "workspaces", Aliases: []string{"workspace"},
		Short: "Workspaces: files that outlive containers"}, workspaces.ListCommand(a), workspaces.RemoveCommand(a))
}
