package data

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// JobsCommand returns `berth jobs`. It only shows jobs: a job is created by the first command that names it. The list
// has the daemon's last known state. The manifest also has files that changed since the last command.
func JobsCommand(a *app.App) *cobra.Command {
	jobs := app.Noun[proto.JobSummary]{
		ListShort: "List the jobs of a container's workspace", ListOf: (*client.Client).Jobs,
		Columns: term.Columns[proto.JobSummary]{
			Head: []string{"JOB", "FILES", "SIZE", "CREATED", "UPDATED"},
			Row: func(j proto.JobSummary) []string {
				return []string{j.JobID, fmt.Sprint(j.Files), term.Size(j.Bytes), term.Ago(j.CreatedAt.Time),
					term.Ago(j.UpdatedAt.Time)}
			},
		},
	}
	manifest := &cobra.Command{
		Use: "manifest CONTAINER JOB", Short: "Print the files of a job, and the command that made each",
		Args: app.ArgCount(2, 2),
		ValidArgsFunction: app.CompleteListOf(a, (*client.Client).Jobs, func(j proto.JobSummary) cobra.Completion {
			return app.Suggestion(j.JobID, term.Ago(j.UpdatedAt.Time))
		}),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			m, err := c.Manifest(ctx, id, args[1])
			if err != nil {
				return err
			}
			return printManifest(a, m)
		}),
	}
	return app.NewGroup(&cobra.Command{Use: "jobs", Short: "Jobs: files of commands, and which command made them"},
		jobs.ListCommand(a), a.AddFormatFlags(manifest))
}

// printManifest prints the files of a job. It shows the last exec that made or changed a file; --json has both. Table
// removes control characters from paths and types, because they come from the container.
func printManifest(a *app.App, m proto.Manifest) error {
	if a.JSON {
		return a.PrintJSON(m)
	}
	rows := make([][]string, len(m.Files))
	for i, f := range m.Files {
		by := cmp.Or(f.ChangedBy, f.CreatedBy) // the first is empty if no exec is known to have changed the file since
		rows[i] = []string{f.Path, term.Size(f.SizeBytes), f.MediaType, f.Origin, by, f.FileID}
	}
	if err := a.Table([]string{"PATH", "SIZE", "TYPE", "ORIGIN", "CHANGED BY", "STORED AS"}, rows); err != nil {
		return err
	}
	if m.Truncated {
		fmt.Fprintln(a.Stderr, "berth: the job holds more files than a manifest lists")
	}
	return nil
}
