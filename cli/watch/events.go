// Package watch has the commands that show what happens, and what containers use: events and stats. Package cli adds
// them to the root command.
package watch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// EventsCommand returns `berth events`.
func EventsCommand(a *app.App) *cobra.Command {
	var filter client.FeedFilter
	var since string
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use: "events [flags]", Short: "Show what happens to containers, commands, files and approvals",
		Args: app.ArgCount(0, 0),
		Long: `Show what happens to containers, commands, files and approvals: the newest events, or all from a time on.
With --follow the command goes on with new events, also after a restart of the daemon.`,
		Example: `  berth events --follow
  berth events --since 1h --type exec.ended --json
  berth events -f --container CONTAINER --type files.changed --type exec.`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if lines < 1 || lines > 1000 {
				return proto.Errorf(proto.InvalidArgument, "", "lines", "--lines must be from 1 to 1000, not %d", lines)
			}
			if filter.Since, err = app.ParseMoment("since", since); err != nil {
				return err
			}
			if filter.Container != "" {
				if filter.Container, err = a.FindContainer(ctx, c, filter.Container); err != nil {
					return err
				}
			}
			return showEvents(ctx, a, c, filter, lines, follow)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&filter.Container, "container", "", "only events of this container; a deleted one needs its whole ID")
	f.StringArrayVar(&filter.Types, "type", nil,
		"only this type, such as exec.ended; \"exec.\" means all that begin with it (may be repeated)")
	f.StringVar(&filter.Owner, "owner", "", "only events of this owner; for admins")
	f.StringVar(&since, "since", "",
		"all events from this time on: a time such as 2006-01-02T15:04:05Z, or how long ago, such as 2h")
	f.IntVarP(&lines, "lines", "n", 20, "number of events before the new ones, 1 to 1000; not with --since")
	f.BoolVarP(&follow, "follow", "f", false, "continue with new events")
	app.CompleteFlag(cmd, "type", proto.FeedTypes...)
	return a.AddFormatFlags(cmd)
}

// showEvents prints old events and then, with follow, new ones.
func showEvents(ctx context.Context, a *app.App, c *client.Client, f client.FeedFilter, lines int, follow bool) error {
	if f.Since.IsZero() {
		f.Limit = lines
	}
	began := time.Now()
	for {
		list, more, err := c.Events(ctx, f)
		if err != nil {
			return err
		}
		for _, e := range list {
			if err := printEvent(a, e); err != nil {
				return err
			}
			if e.ID != "" {
				f.After = e.ID
			}
		}
		if f.Limit = 1000; !more {
			break
		}
	}
	if !follow {
		return nil
	}
	if f.After == "" && f.Since.IsZero() {
		f.Since = began
	}
	return a.Follow(ctx, func(printed func(error) error) (on bool, err error) {
		err = c.FollowEvents(ctx, f, nil, func(e proto.FeedEvent) error {
			if e.ID != "" {
				f.After, on = e.ID, true
			}
			return printed(printEvent(a, e))
		})
		return on, err
	})
}

// printEvent prints one event on a line.
func printEvent(a *app.App, e proto.FeedEvent) error {
	if a.JSON {
		return a.PrintLine(e)
	}
	words := []string{e.Timestamp.Local().Format(time.DateTime), fmt.Sprintf("%-17s", e.Type), e.ContainerID, e.ExecID,
		e.Item, strings.Join(e.FileIDs, " "), e.Decision, eventDetail(e)}
	text := strings.Join(strings.FieldsFunc(strings.Join(words, "\x00"), func(r rune) bool { return r == 0 }), "  ")
	_, err := fmt.Fprintln(a.Stdout, term.Printable(text))
	return err
}

// eventDetail returns what a person wants to know of an event beside its type and IDs.
func eventDetail(e proto.FeedEvent) string {
	switch {
	case e.Exec != nil:
		command := term.Short(term.OneLine(e.Exec.Command), 80)
		if e.Exec.Reason == "" {
			return command
		}
		code := 0
		if e.Exec.ReturnCode != nil {
			code = *e.Exec.ReturnCode
		}
		return fmt.Sprintf("%s %d after %.1fs  %s", e.Exec.Reason, code, e.Exec.Seconds, command)
	case e.ToolCall != nil:
		return strings.TrimSpace(e.ToolCall.Tool + " " + e.ToolCall.Error)
	case e.Port != nil && e.Port.PID != 0:
		return strings.TrimSpace(fmt.Sprintf("%s (process %d)  %s", e.Port.Program, e.Port.PID, e.Note))
	case len(e.Paths) > 0 && e.Item == "":
		return term.Short(strings.Join(e.Paths, " "), 120)
	}
	return e.Note
}
