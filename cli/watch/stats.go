package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// StatsCommand returns `berth stats`.
func StatsCommand(a *app.App) *cobra.Command {
	var once bool
	interval := 2
	cmd := &cobra.Command{
		Use: "stats [flags] [CONTAINER…]", Short: "Show what containers use: CPU, memory, disk, network, processes",
		Args: app.ArgCount(0, -1), ValidArgsFunction: a.CompleteContainers(-1),
		Long: `Show what containers use, now and then every few seconds: those named, or all that run.

CPU is in percent of one core. Disk is the workspace and the writable layer. Network counts finished requests since the
daemon started. Measuring neither wakes a container nor keeps it from being paused or stopped.`,
		Example: "  berth stats\n  berth stats --no-stream --json CONTAINER",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			if interval < 1 || interval > 60 {
				return proto.Errorf(proto.InvalidArgument, "", "interval", "--interval must be from 1 to 60 seconds, "+
					"not %d", interval)
			}
			var ids []string
			err := a.EachContainer(ctx, c, args, func(id string) error {
				ids = append(ids, id)
				return nil
			})
			if err != nil {
				return err
			}
			if once {
				return showStats(ctx, a, c, ids)
			}
			return followStats(ctx, a, c, ids, interval)
		}),
	}
	cmd.Flags().BoolVar(&once, "no-stream", false, "show the numbers once")
	cmd.Flags().IntVar(&interval, "interval", interval, "seconds between two lists, 1 to 60")
	return a.AddFormatFlags(cmd)
}

// showStats shows one list. It measures twice, a second apart, since a percentage needs two measurements.
func showStats(ctx context.Context, a *app.App, c *client.Client, ids []string) error {
	n, enough := 0, errors.New("enough")
	var last []proto.Stats
	err := c.FollowStats(ctx, ids, 1, func(list []proto.Stats) error {
		last = list
		if n++; n == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		return err
	}
	return printStats(a, last)
}

// followStats shows a list each interval. On a terminal each list takes the place of the one before.
func followStats(ctx context.Context, a *app.App, c *client.Client, ids []string, interval int) error {
	out, ok := a.Stdout.(*os.File)
	replace := ok && term.IsTerminal(out) && !a.JSON
	return a.Follow(ctx, func(printed func(error) error) (on bool, err error) {
		err = c.FollowStats(ctx, ids, interval, func(list []proto.Stats) (err error) {
			on = true
			if replace {
				_, err = io.WriteString(a.Stdout, "\x1b[H\x1b[2J") // to the top, and clear the screen
			}
			if err == nil {
				err = printStats(a, list)
			}
			return printed(err)
		})
		return on, err
	})
}

// printStats prints a table, or a line of JSON for each container.
func printStats(a *app.App, list []proto.Stats) error {
	if a.JSON {
		for _, s := range list {
			if err := a.PrintLine(s); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, s := range list {
		cpu := "-"
		if s.CPU.Percent != nil {
			cpu = fmt.Sprintf("%.1f%%", *s.CPU.Percent)
		}
		processes := "-"
		if s.Processes != nil {
			processes = strconv.FormatInt(*s.Processes, 10)
		}
		rows = append(rows, []string{s.ContainerID, s.Name, string(s.State), cpu,
			size(s.Memory.UsedBytes) + " / " + term.Size(s.Memory.LimitBytes),
			size(s.Disk.WorkspaceBytes) + " + " + size(s.Disk.LayerBytes) + " / " + term.Size(s.Disk.LimitBytes),
			term.Size(s.Network.SentBytes) + " / " + term.Size(s.Network.ReceivedBytes),
			processes + " / " + strconv.FormatInt(s.ProcessesLimit, 10), strconv.Itoa(s.RunningExecs)})
	}
	return a.Table([]string{"ID", "NAME", "STATE", "CPU", "MEMORY", "DISK", "NET OUT / IN", "PROCESSES", "EXECS"}, rows)
}

// size writes a number of bytes that may be unknown.
func size(n *int64) string {
	if n == nil {
		return "-"
	}
	return term.Size(*n)
}
