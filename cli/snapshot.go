package cli

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/data"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// snapshotCommand returns `berth snapshot`.
func snapshotCommand(a *app.App) *cobra.Command {
	var container string
	noun := app.Noun[proto.Snapshot]{
		ListShort: "List snapshots, newest first", Quiet: "print IDs only",
		List: func(c *client.Client, ctx context.Context) ([]proto.Snapshot, error) {
			id := container
			if id != "" && !proto.ValidID(proto.ContainerPrefix, id) { // one that is gone has an ID only
				con, err := c.Container(ctx, id)
				if err != nil {
					return nil, err
				}
				id = con.ID
			}
			return c.Snapshots(ctx, id, nil)
		},
		Columns: term.Columns[proto.Snapshot]{
			Head: []string{"ID", "NAME", "CONTAINER", "IMAGE", "SIZE", "CREATED", "EXPIRES IN", "LABELS"},
			Row: func(s proto.Snapshot) []string {
				expires := "-"
				if s.ExpiresAt != nil {
					expires = term.Left(s.ExpiresAt.Time)
				}
				size := "-"
				if s.SizeBytes > 0 {
					size = term.Size(s.SizeBytes)
				}
				return []string{s.ID, cmp.Or(s.Name, "-"), s.ContainerID, s.Image, size, term.Ago(s.CreatedAt.Time),
					expires, term.LabelText(s.Labels)}
			},
		},
		Argument: "SNAPSHOT", RemoveShort: "Delete snapshots; containers that were made of them stay",
		Remove: (*client.Client).DeleteSnapshot,
	}
	list := noun.ListCommand(a)
	list.Flags().StringVar(&container, "container", "", "only snapshots of this container")
	return app.NewGroup(&cobra.Command{Use: "snapshot", Aliases: []string{"snapshots"},
		Short: "Snapshots: all files of a container as of one moment"}, takeSnapshotCommand(a), list,
		inspectSnapshotCommand(a), exportSnapshotCommand(a), commitSnapshotCommand(a), noun.RemoveCommand(a))
}

// takeSnapshotCommand returns `berth snapshot create`. It prints the ID on standard output, for $(…).
func takeSnapshotCommand(a *app.App) *cobra.Command {
	var req proto.CreateSnapshot
	var labels []string
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "create [flags] CONTAINER", Aliases: []string{"take"}, Short: "Take a snapshot and print its ID",
		Args: app.ArgCount(1, 1), ValidArgsFunction: a.CompleteContainers(1),
		Long: "Keep all files of a container as they are now: its workspace and what it has written elsewhere. " +
			"Commands that run are frozen for some milliseconds and go on.",
		Example: "  berth snapshot create --name before analysis\n  berth restore analysis before\n" +
			"  berth create --snapshot before",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, _ []string) (err error) {
			if req.Labels, err = flags.Labels(labels); err != nil {
				return err
			}
			if req.ExpiresAfterSeconds, err = term.ParseSeconds("expires", expires); err != nil {
				return err
			}
			snap, err := c.CreateSnapshot(ctx, id, req)
			return a.PrintResult(snap, snap.ID, err)
		}),
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "name, which no other snapshot of yours may have")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "label, key=value (may be repeated)")
	cmd.Flags().DurationVar(&expires, "expires", 0, "delete it after this time, such as 24h (default: never)")
	return a.AddFormatFlags(cmd)
}

// inspectSnapshotCommand returns `berth snapshot inspect`.
func inspectSnapshotCommand(a *app.App) *cobra.Command {
	return a.AddFormatFlags(&cobra.Command{
		Use: "inspect SNAPSHOT…", Short: "Print details of snapshots as JSON", Args: app.ArgCount(1, -1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			var list []proto.Snapshot
			err := app.EachName(ctx, args, func(name string) error {
				snap, err := c.Snapshot(ctx, name)
				if err == nil {
					list = append(list, snap)
				}
				return err
			})
			return cmp.Or(a.PrintJSON(term.NotNil(list)), err)
		}),
	})
}

// exportSnapshotCommand returns `berth snapshot export`.
func exportSnapshotCommand(a *app.App) *cobra.Command {
	var out, name string
	cmd := &cobra.Command{
		Use: "export [flags] SNAPSHOT", Short: "Write a snapshot as an OCI image archive", Args: app.ArgCount(1, 1),
		Long: "Write a snapshot as an OCI image archive. `berth image import` makes an image of it, here or on " +
			"another machine, and new containers of that begin with the files. Other programs can run it, too.",
		Example: "  berth snapshot export before -o before.tar\n  berth image import --name before before.tar",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			d, err := c.ExportSnapshot(ctx, args[0], name)
			if err != nil {
				return err
			}
			defer d.Close()
			if out == "" || out == "-" {
				_, err = io.Copy(a.Stdout, d)
				return err
			}
			bar := a.NewProgress()
			defer bar.End()
			return data.Save(out, bar.Reader(d, "receiving "+filepath.Base(out), d.Size), 0, time.Time{})
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write (default: standard output)")
	cmd.Flags().StringVar(&name, "name", "", "name of the image in the archive (default snapshot:NAME)")
	return a.AddQuietFlag(cmd, "show no progress")
}

// commitSnapshotCommand returns `berth snapshot commit`.
func commitSnapshotCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "commit SNAPSHOT NAME", Short: "Make an image of a snapshot", Args: app.ArgCount(2, 2),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			bar := a.NewProgress()
			defer bar.End()
			img, err := c.CommitSnapshot(ctx, args[0], args[1], bar.Image)
			bar.End()
			return a.PrintResult(img, img.Name, err)
		}),
	}
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}

// restoreCommand returns `berth restore`.
func restoreCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore CONTAINER SNAPSHOT", Short: "Give a container the files of a snapshot", Args: app.ArgCount(2, 2),
		Long: "Give a container the files of a snapshot in place of its own. Its processes end; the next use starts " +
			"it. Files that are not in a snapshot are lost.",
		ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			con, err := c.Restore(ctx, id, args[1])
			return a.PrintResult(con, con.ID, err)
		}),
	}
	return a.AddFormatFlags(cmd)
}

// forkCommand returns `berth fork`.
func forkCommand(a *app.App) *cobra.Command {
	var count int
	cmd := &cobra.Command{
		Use: "fork [flags] CONTAINER", Short: "Make copies of a container and print their IDs",
		Args:              app.ArgCount(1, 1),
		ValidArgsFunction: a.CompleteContainers(1),
		Long: "Make copies of a container. Each has its files as of one moment, and its environment, secrets, tools, " +
			"labels, network, limits and lease, but no processes and no name. If one cannot be made, none is.",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, _ []string) error {
			forks, err := c.Fork(ctx, id, count)
			if err != nil || a.JSON {
				return printChanged(a, forks, err)
			}
			for _, fork := range forks {
				if err := a.PrintIDs(fork.ID); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().IntVarP(&count, "count", "n", 1, "how many, 1 to 100")
	return a.AddFormatFlags(cmd)
}
