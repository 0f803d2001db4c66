package data

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// JobsCommand returns `berth jobs`. It only shows jobs: a job is created by the first command that names it.
func JobsCommand(a *app.App) *cobra.Command {
	list := &cobra.Command{
		Use: "ls CONTAINER", Aliases: []string{"list"}, Short: "List the jobs of a container's workspace",
		Args: app.ArgCount(1, 1), ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := a.FindContainer(ctx, c, args[0])
			if err != nil {
				return err
			}
			// This is the daemon's last known state. The manifest subcommand also finds files that changed since the
			// last command.
			jobs, err := c.Jobs(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(term.NotNil(jobs))
			}
			rows := make([][]string, len(jobs))
			for i, j := range jobs {
				rows[i] = []string{j.JobID, fmt.Sprint(j.Files), term.Size(j.Bytes), term.Ago(j.CreatedAt.Time),
					term.Ago(j.UpdatedAt.Time)}
			}
			return a.Table([]string{"JOB", "FILES", "SIZE", "CREATED", "UPDATED"}, rows)
		}),
	}
	manifest := &cobra.Command{
		Use: "manifest CONTAINER JOB", Short: "Print the files of a job, and the command that made each",
		Args:              app.ArgCount(2, 2),
		ValidArgsFunction: a.CompleteJobs,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := a.FindContainer(ctx, c, args[0])
			if err != nil {
				return err
			}
			m, err := c.Manifest(ctx, id, args[1])
			if err != nil {
				return err
			}
			return printManifest(a, m)
		}),
	}
	return app.NewGroup(&cobra.Command{Use: "jobs", Short: "Jobs: files of commands, and which command made them"},
		a.AddJSONFlag(list), a.AddJSONFlag(manifest))
}

// printManifest prints the files of a job. It shows the last exec that made or changed a file; --json has both. Table
// removes control characters from paths and types, because they come from the container.
func printManifest(a *app.App, m proto.Manifest) error {
	if a.JSON {
		return a.PrintJSON(m)
	}
	rows := make([][]string, len(m.Files))
	for i, f := range m.Files {
		// Empty if no exec is known to have changed the file since.
		by := f.ChangedBy
		if by == "" {
			by = f.CreatedBy
		}
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
