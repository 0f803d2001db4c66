package data

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// WatchCommand returns `berth watch`.
func WatchCommand(a *app.App) *cobra.Command {
	var user string
	var o client.WatchOptions
	cmd := &cobra.Command{
		Use: "watch [flags] CONTAINER [PATH]", Short: "Print the changes in a directory of a container",
		Long: `Print the changes in a directory of a container as they happen, until the directory is removed or
Ctrl-C. PATH is /workspace by default. Each line has what happened (create, write, remove, rename, chmod) and the path
below PATH. A renamed file is told by both names. "overflow" means that events were lost; list the directory then. After
a restart of the daemon the command goes on, with an "overflow" for what it may have missed.`,
		Example: `  berth watch CONTAINER
  berth watch -r --json CONTAINER /workspace/src`,
		Args: app.ArgCount(1, 2), ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			dir := proto.WorkspaceDir
			if len(args) > 1 {
				dir = args[1]
			}
			o.Entries = a.JSON
			return followFiles(ctx, a, c, id, func(each func(proto.FileEvent) error) error {
				return c.FS(id, user).Watch(ctx, dir, o, each)
			})
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", proto.UserDefault, "who watches: user, root, or another NAME[:GROUP]")
	cmd.Flags().BoolVarP(&o.Recursive, "recursive", "r", false, "also watch the directories below")
	return a.AddFormatFlags(cmd)
}

// followFiles prints the events of a watch. A watch ends with its daemon, and the next one cannot say what happened in
// between: an overflow does. It does not wake a container that was stopped meanwhile.
func followFiles(ctx context.Context, a *app.App, c *client.Client, id string,
	watch func(each func(proto.FileEvent) error) error) error {
	watched := false
	return a.Follow(ctx, func(printed func(error) error) (on bool, err error) {
		if watched {
			now, err := c.Container(ctx, id)
			if err != nil {
				return false, err
			}
			if now.State != proto.StateRunning {
				return false, proto.Errorf(proto.Conflict, "", id, "container %s is %s, which ended the watch", id,
					now.State)
			}
		}
		err = watch(func(ev proto.FileEvent) error {
			on = true
			if ev.Type == proto.FileWatched && watched {
				fmt.Fprintln(a.Stderr, "berth: watching again; what changed since the connection broke is not shown")
				ev.Type = proto.FileOverflow
			}
			watched = true
			return printed(printFileEvent(a, ev))
		})
		return on, err
	})
}

// printFileEvent prints one event. The names come from the container.
func printFileEvent(a *app.App, ev proto.FileEvent) error {
	if a.JSON {
		return json.NewEncoder(a.Stdout).Encode(ev) // one line for each
	}
	if ev.Type == proto.FileWatched {
		fmt.Fprintf(a.Stderr, "berth: watching %s\n", term.Printable(ev.Path))
		return nil
	}
	name := ev.Name
	if ev.Directory {
		name += "/"
	}
	_, err := fmt.Fprintf(a.Stdout, "%-8s %s\n", ev.Type, term.Printable(name))
	return err
}
