package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// createCommand returns `berth create`. It runs no command, so it prints only the ID on standard output, for $(…).
func createCommand(a *app.App) *cobra.Command {
	var f containerFlags
	var existing bool
	cmd := &cobra.Command{
		Use: "create [flags]", Short: "Create a container and print its ID", Args: app.ArgCount(0, 0),
		Long: "Create a container and print its ID.\n\nWith --existing, a live container of that --name is started " +
			"and its ID is printed. It stays as it is; what differs from the other flags is printed.",
		Example: "  berth create --image base --name analysis --idle 30m --file data.csv\n" +
			"  berth create --existing --name analysis",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			// Uploaded files stay if the container is refused. The next attempt can name them by ID.
			req, _, err := f.request(ctx, a, c)
			if err != nil {
				return err
			}
			req.Existing = existing
			con, err := c.Create(ctx, req)
			for _, d := range con.Differences {
				fmt.Fprintf(a.Stderr, "berth: %s of container %s is %s, not %s\n", term.Printable(d.Field), con.ID,
					term.Printable(d.Have), term.Printable(d.Asked))
			}
			return a.PrintResult(con, con.ID, app.AddImageHint(a, err))
		}),
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&existing, "existing", false, "take the live container of that --name if there is one")
	completeContainerFlags(a, cmd)
	return a.AddFormatFlags(cmd)
}

// renameCommand returns `berth rename`. The names are in the order of docker's command.
func renameCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rename CONTAINER NAME", Short: "Give a container another name", Args: app.ArgCount(2, 2),
		Long: "Give a container another name, which is its host name, too. An empty NAME takes the name away. A " +
			"running container of the class gvisor has the new host name from its next start on.",
		ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			con, err := c.Change(ctx, id, proto.ChangeContainer{Name: &args[1]})
			return a.PrintResult(con, con.ID, err)
		}),
	}
	return a.AddFormatFlags(cmd)
}

// listCommand returns `berth ls`. Unlike docker, it shows stopped containers without -a: the next command restarts
// them, so they are as useful as running ones.
func listCommand(a *app.App) *cobra.Command {
	var all bool
	var filter client.Filter
	cmd := app.Noun[proto.Container]{
		ListShort: "List containers", Quiet: "print IDs only",
		List: func(c *client.Client, ctx context.Context) ([]proto.Container, error) {
			return listContainers(ctx, c, filter, all)
		},
		Columns: containerColumns,
	}.ListCommand(a)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include expired containers")
	cmd.Flags().StringArrayVarP(&filter.Labels, "label", "l", nil,
		"only containers with this label, key=value (may be repeated)")
	cmd.Flags().StringVar((*string)(&filter.State), "state", "", "only containers in this state: running, stopped, "+
		"paused, expired")
	return cmd
}

// listContainers lists the containers that match the filter. With all, it adds expired containers, which are
// otherwise never listed. all has no effect if the filter has a state.
func listContainers(ctx context.Context, c *client.Client, f client.Filter, all bool) ([]proto.Container, error) {
	list, err := c.Containers(ctx, f)
	if err != nil || !all || f.State != "" {
		return list, err
	}
	f.State = proto.StateExpired
	gone, err := c.Containers(ctx, f)
	list = append(list, gone...)
	// IDs begin with the time, so this sorts both lists newest first.
	slices.SortStableFunc(list, func(x, y proto.Container) int { return strings.Compare(y.ID, x.ID) })
	return list, err
}

// containerColumns are the tables of containers. The narrow one has the end of the ID, which every command takes. It
// fits into 80 columns.
var containerColumns = term.Columns[proto.Container]{
	Head: []string{"ID", "NAME", "STATE", "IMAGE", "CLASS", "NETWORK", "CREATED", "EXPIRES IN", "LABELS"},
	Row: func(con proto.Container) []string {
		expires := term.Left(con.MaxExpiresAt.Time)
		if con.Next != nil {
			expires = term.Left(con.Next.At.Time) + " (" + string(con.Next.Action) + ")"
		}
		return []string{con.ID, app.ContainerName(con), string(con.State), con.Image, string(con.RuntimeClass),
			string(con.Network.Mode), term.Ago(con.CreatedAt.Time), expires, term.LabelText(con.Labels)}
	},
	NarrowHead: []string{"ID", "NAME", "STATE", "IMAGE", "IDLE STOP", "DELETED IN"},
	NarrowRow: func(con proto.Container) []string {
		idle, deleted := "-", term.Brief(time.Until(con.MaxExpiresAt.Time))
		if next := con.Next; next != nil && next.Action != proto.LeaseRemove {
			idle = term.Brief(time.Until(next.At.Time))
			if next.Action != proto.LeaseStop {
				idle += " (" + string(next.Action) + ")"
			}
		} else if next != nil {
			deleted = term.Brief(time.Until(next.At.Time))
		}
		return []string{app.ShortID(con.ID), cmp.Or(app.ContainerName(con), "-"), string(con.State), con.Image, idle,
			deleted}
	},
}

// inspectCommand returns `berth inspect`. It prints a list even for one container, as docker does, so scripts need no
// special case. If one of several lookups fails, the others are printed.
func inspectCommand(a *app.App) *cobra.Command {
	return a.AddFormatFlags(&cobra.Command{
		Use: "inspect CONTAINER…", Short: "Print details of containers as JSON", Args: app.ArgCount(1, -1),
		ValidArgsFunction: a.CompleteContainers(-1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			var list []proto.Container
			err := a.EachContainer(ctx, c, args, func(id string) error {
				con, err := c.Container(ctx, id)
				if err == nil {
					list = append(list, con)
				}
				return err
			})
			return errors.Join(a.PrintJSON(term.NotNil(list)), err)
		}),
	})
}

// changeCommand returns a command that changes each container and prints the result. It prints IDs as changes happen,
// but JSON only at the end, since the JSON must be one value.
func changeCommand(a *app.App, use, short string, change func(*client.Client, context.Context, string) (proto.Container,
	error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " CONTAINER…", Short: short, Args: app.ArgCount(1, -1), ValidArgsFunction: a.CompleteContainers(-1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			var list []proto.Container
			err := a.EachContainer(ctx, c, args, func(id string) error {
				con, err := change(c, ctx, id)
				if err != nil {
					return err
				}
				list = append(list, con)
				return printUnlessJSON(a, con.ID)
			})
			return printChanged(a, list, err)
		}),
	}
	return a.AddFormatFlags(cmd)
}

// printUnlessJSON prints an ID. With --json it prints nothing, because printChanged prints all results at the end.
func printUnlessJSON(a *app.App, id string) error {
	if a.JSON {
		return nil
	}
	return a.PrintIDs(id)
}

// printChanged prints, with --json, the results of a command that changed several items. It returns err too.
func printChanged[T any](a *app.App, list []T, err error) error {
	if a.JSON {
		return errors.Join(a.PrintJSON(term.NotNil(list)), err)
	}
	return err
}

// stateCommands returns `berth start`, stop, reset, pause and resume. Any use starts a stopped container; the command
// start is for users who want to wait for the start. stop ends all commands of the container, including background
// ones. The lifetime continues: a stopped container is removed when it expires.
func stateCommands(a *app.App) []*cobra.Command {
	pause := changeCommand(a, "pause", "Pause containers until their next use", (*client.Client).Pause)
	pause.Long = "Pause containers with the commands that run in them. Paused containers use no CPU and keep their " +
		"memory. Any use resumes them, and so does `berth resume`. They stay paused past the end of their leases, " +
		"until the daemon stops them after 30 days (serve --pause-retention)."
	reset := changeCommand(a, "reset", "Give containers the files of their images again", (*client.Client).Reset)
	reset.Long = "Remove all that containers have written outside their workspaces, and end their processes. The " +
		"workspaces stay. The next use starts a container with the files of its image."
	return []*cobra.Command{
		changeCommand(a, "start", "Start stopped containers again", (*client.Client).Start),
		changeCommand(a, "stop", "Stop containers; their files stay", (*client.Client).Stop), reset, pause,
		changeCommand(a, "resume", "Resume paused containers", (*client.Client).Resume),
	}
}

// extendCommand returns `berth extend`. It extends only the idle timeout. max_expires_at is fixed, so that every
// container ends.
func extendCommand(a *app.App) *cobra.Command {
	var by time.Duration
	cmd := changeCommand(a, "extend", "Give containers more time", func(c *client.Client, ctx context.Context,
		id string) (proto.Container, error) {
		seconds, err := term.ParseSeconds("by", by)
		if err != nil {
			return proto.Container{}, err
		}
		return c.Extend(ctx, id, seconds)
	})
	cmd.Long = "Extend the leases of containers: to at least --by from now, or without --by by the idle timeout. The " +
		"lifetime stays the limit."
	cmd.Flags().DurationVar(&by, "by", 0, "minimum time from now, such as 1h")
	return cmd
}

// removeCommand returns `berth rm`. Files are deleted with the container for good, so a container at work needs -f.
func removeCommand(a *app.App) *cobra.Command {
	var force, keep bool
	cmd := &cobra.Command{
		Use: "rm [flags] CONTAINER…", Aliases: []string{"delete"}, Short: "Delete containers with their files",
		Args:              app.ArgCount(1, -1),
		ValidArgsFunction: a.CompleteContainers(-1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			var list []client.Deleted
			err := app.EachName(ctx, args, func(name string) error {
				id, err := a.FindContainer(ctx, c, name)
				// no ID to print; a mistyped name should be visible
				if err != nil && force && app.IsNotFound(err, name) {
					fmt.Fprintln(a.Stderr, "berth: "+term.Printable(err.Error())+", so nothing is deleted")
					return nil
				}
				if err != nil {
					return err
				}
				d, err := removeContainer(ctx, a, c, id, force, keep)
				if err != nil {
					return err
				}
				list = append(list, d)
				return printUnlessJSON(a, id)
			})
			return printChanged(a, list, err)
		}),
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false,
		"delete even while commands run; a missing container is not an error")
	cmd.Flags().BoolVar(&keep, "keep-workspace", false, "keep the workspaces for other containers")
	return a.AddFormatFlags(cmd)
}

// removeContainer deletes one container. Without force it refuses a container at work. The check takes no lock: a
// command that starts between check and deletion is ended.
func removeContainer(ctx context.Context, a *app.App, c *client.Client, id string, force, keep bool) (client.Deleted,
	error) {
	if !force {
		// An expired container runs no commands, and its record can still be deleted.
		if err := atWork(ctx, c, id); err != nil && proto.CodeOf(err) != proto.Expired {
			return client.Deleted{}, err
		}
	}
	d, err := c.Delete(ctx, id, keep)
	// As with rm -f, a container that is already gone is a success.
	if force && proto.CodeOf(err) == proto.NotFound {
		return client.Deleted{ID: id}, nil
	}
	return d, err
}

// atWork returns an error if a container runs commands, or a cell in one of its contexts. An idle interpreter does
// not count.
func atWork(ctx context.Context, c *client.Client, id string) error {
	con, err := c.Container(ctx, id)
	if err != nil {
		return err
	}
	if con.RunningExecs > 0 {
		return app.WithHint(proto.Errorf(proto.Conflict, "", id, "container %s runs %d commands", id, con.RunningExecs),
			fmt.Sprintf("`berth ps %s` lists them; `berth rm -f` ends them", id))
	}
	all, err := c.Contexts(ctx, id)
	for _, one := range all {
		if one.State == proto.ContextBusy {
			return app.WithHint(proto.Errorf(proto.Conflict, "", id, "container %s runs a cell in its context %s", id,
				one.Name),
				fmt.Sprintf("`berth contexts interrupt %s %s` ends it; `berth rm -f` too", id, one.Name))
		}
	}
	return err
}
