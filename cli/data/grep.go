package data

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// GrepCommand returns `berth grep`.
func GrepCommand(a *app.App) *cobra.Command {
	var user string
	var o proto.GrepOptions
	var around int
	var names bool
	cmd := &cobra.Command{
		Use: "grep [flags] CONTAINER PATTERN [PATH]", Short: "Find lines in the files of a container",
		Long: `Print the lines that match a regular expression (RE2) in the files below a directory of a container, or in one file.
PATH is /workspace by default. Binary files are skipped. Lines of context have a - instead of a : behind the path.
The exit status is 0 if a line was found, 1 if none, and 125 after an error.`,
		Example: `  berth grep CONTAINER 'def \w+\(' --include '*.py'
  berth grep -F -i -C 2 CONTAINER todo src --exclude node_modules
  berth grep -l CONTAINER password /etc`,
		Args: app.ArgCount(2, 3), ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			dir := proto.WorkspaceDir
			if len(args) > 2 {
				dir = args[2]
			}
			if o.Pattern = args[1]; names {
				o.MaxPerFile = 1
			}
			if around > 0 {
				o.LinesBefore, o.LinesAfter = around, around
			}
			return grep(ctx, a, c.FS(id, user), dir, o, names)
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&user, "user", "u", proto.UserDefault, "who searches")
	registerGlobs(f, &o.FindOptions, "include")
	f.Lookup("ignore-case").Usage = "ignore case, in globs too"
	f.BoolVarP(&o.Fixed, "fixed-strings", "F", false, "PATTERN is the text itself")
	f.IntVarP(&around, "context", "C", 0, "lines around each match, up to 20")
	f.IntVarP(&o.LinesBefore, "before-context", "B", 0, "lines before each match")
	f.IntVarP(&o.LinesAfter, "after-context", "A", 0, "lines after each match")
	f.IntVarP(&o.MaxMatches, "max", "m", 0, "stop after this many matches, up to 10000 (default 1000)")
	f.IntVarP(&o.Depth, "depth", "d", 0, "levels of directories; 1 is PATH itself (default all)")
	f.BoolVarP(&names, "files-with-matches", "l", false, "print only the paths of the files")
	cmd.MarkFlagsMutuallyExclusive("context", "before-context")
	cmd.MarkFlagsMutuallyExclusive("context", "after-context")
	return a.AddFormatFlags(cmd)
}

// statusNothing is the exit status of a search that has found nothing, as that of grep.
const statusNothing = 1

// grep prints what is found as it comes.
func grep(ctx context.Context, a *app.App, fs client.FS, dir string, o proto.GrepOptions, names bool) error {
	out := bufio.NewWriter(a.Stdout)
	var last proto.GrepEvent
	var sum proto.GrepSummary
	err := fs.Grep(ctx, dir, o, func(ev proto.GrepEvent) (err error) {
		switch {
		case a.JSON:
			if ev.Summary != nil {
				sum = *ev.Summary
			}
			return a.PrintLine(ev)
		case ev.Summary != nil:
			sum = *ev.Summary
			return nil
		case names && ev.Type != proto.GrepMatch:
			return nil
		case names:
			_, err = fmt.Fprintln(out, term.Printable(ev.Path))
		default:
			if o.LinesBefore+o.LinesAfter > 0 && last.Path != "" && (ev.Path != last.Path || ev.Line > last.Line+1) {
				fmt.Fprintln(out, "--")
			}
			_, err = fmt.Fprintln(out, grepText(ev))
		}
		last = ev
		return errors.Join(err, out.Flush())
	})
	if err != nil {
		return err
	}
	if sum.Truncated {
		fmt.Fprintf(a.Stderr, "berth: stopped after %d matches; there may be more\n", sum.Matches)
	}
	if n := sum.SkippedFiles + sum.Skipped; n > 0 {
		fmt.Fprintf(a.Stderr, "berth: %d files or directories were left out: not readable, or too deep\n", n)
	}
	if sum.Matches == 0 {
		return app.ExitError{Status: statusNothing}
	}
	return nil
}

// grepText returns the line of an event as grep prints it.
func grepText(ev proto.GrepEvent) string {
	text := ev.Text
	if ev.Cut {
		text += " …"
	}
	if ev.TextColumn > 1 {
		text = "… " + text
	}
	text = term.Printable(strings.ReplaceAll(text, "\t", "    "))
	if ev.Type == proto.GrepContext {
		return fmt.Sprintf("%s-%d-%s", term.Printable(ev.Path), ev.Line, text)
	}
	return fmt.Sprintf("%s:%d:%d:%s", term.Printable(ev.Path), ev.Line, ev.Column, text)
}
