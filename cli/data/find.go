package data

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// findFlags are the flags of a search for files.
type findFlags struct {
	o              proto.FindOptions
	types          []string
	larger         string
	smaller        string
	newer, older   string
	most           int
	null, longList bool
}

// FindCommand returns `berth find`.
func FindCommand(a *app.App) *cobra.Command {
	var user string
	var ff findFlags
	cmd := &cobra.Command{
		Use: "find [flags] CONTAINER [PATH]", Short: "Find files in a container",
		Long: `Print the paths of the files and directories below a directory of a container, each directory before what is in it.
PATH is /workspace by default. All conditions must hold. Links are not followed, and /proc and the like are not entered.

In a glob, * and ? stand for characters of a name, and ** for any directories. A glob without a slash is compared with
the last part of a path, another one with the path below PATH.`,
		Example: `  berth find CONTAINER --name '*.py' --exclude .git --exclude node_modules
  berth find CONTAINER / --type file --larger 100MB -l
  berth find CONTAINER --newer 10m --json`,
		Args: app.ArgCount(1, 2), ValidArgsFunction: a.CompleteContainers(1),
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, args []string) error {
			dir := proto.WorkspaceDir
			if len(args) > 1 {
				dir = args[1]
			}
			if err := ff.parse(); err != nil {
				return err
			}
			return ff.print(ctx, a, c.FS(id, user), dir)
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&user, "user", "u", proto.UserDefault, "who searches")
	registerGlobs(f, &ff.o, "name")
	f.StringArrayVarP(&ff.types, "type", "t", nil, "only this: file, directory, symlink or other (may be repeated)")
	f.StringVar(&ff.larger, "larger", "", "only files of this size or more, such as 10MB")
	f.StringVar(&ff.smaller, "smaller", "", "only files of this size or less")
	f.StringVar(&ff.newer, "newer", "", "only modified since: a time, or how long ago, such as 2h")
	f.StringVar(&ff.older, "older", "", "only modified before: a time, or how long ago")
	f.IntVarP(&ff.o.Depth, "depth", "d", 0, "levels of directories; 1 is PATH itself (default all)")
	f.IntVarP(&ff.most, "max", "m", 0, "stop after this many (default all)")
	f.BoolVarP(&ff.longList, "long", "l", false, "also print mode, owner, size and time")
	f.BoolVarP(&ff.null, "print0", "0", false, "end each path with a NUL byte, and print its bytes unchanged")
	app.CompleteFlag(cmd, "type", proto.TypeFile, proto.TypeDirectory, proto.TypeSymlink, proto.TypeOther)
	a.AddFormatFlags(cmd)
	cmd.MarkFlagsMutuallyExclusive("long", "print0", "json")
	return cmd
}

// registerGlobs adds the flags of globs. what is the name of the first.
func registerGlobs(f *pflag.FlagSet, o *proto.FindOptions, what string) {
	f.StringArrayVar(&o.Names, what, nil, "only what this glob matches (may be repeated)")
	f.StringArrayVar(&o.Exclude, "exclude", nil, "leave out what this glob matches, and what is below (may be "+
		"repeated)")
	f.BoolVarP(&o.IgnoreCase, "ignore-case", "i", false, "ignore case")
}

// parse converts the texts of the flags.
func (ff *findFlags) parse() (err error) {
	for _, t := range ff.types {
		ff.o.Types = append(ff.o.Types, proto.FileType(t))
	}
	if ff.larger != "" {
		if ff.o.MinSize, err = term.ParseSize("larger", ff.larger); err != nil {
			return err
		}
	}
	if ff.smaller != "" {
		most, err := term.ParseSize("smaller", ff.smaller)
		if err != nil {
			return err
		}
		ff.o.MaxSize = &most
	}
	if ff.o.After, err = momentOrNil("newer", ff.newer); err != nil {
		return err
	}
	ff.o.Before, err = momentOrNil("older", ff.older)
	return err
}

func momentOrNil(flag, text string) (*proto.Time, error) {
	t, err := app.ParseMoment(flag, text)
	if err != nil || t.IsZero() {
		return nil, err
	}
	at := proto.At(t)
	return &at, nil
}

// print prints what is found as it comes.
func (ff *findFlags) print(ctx context.Context, a *app.App, fs client.FS, dir string) error {
	out := bufio.NewWriter(a.Stdout)
	defer out.Flush()
	skipped, n := 0, 0
	if ff.most > 0 {
		ff.o.Limit = min(ff.most, proto.MaxFindPage)
	}
	for fi, err := range fs.All(ctx, dir, ff.o, &skipped) {
		if err != nil {
			return err
		}
		switch {
		case a.JSON:
			err = a.PrintLine(fi)
		case ff.null:
			_, err = out.WriteString(truePath(fi) + "\x00")
		case ff.longList:
			_, err = fmt.Fprintf(out, "%s\n", longLine(fi))
		default:
			_, err = out.WriteString(term.Printable(fi.Path) + "\n")
		}
		if err != nil {
			return err
		}
		if n++; n == ff.most {
			break
		}
	}
	if skipped > 0 {
		fmt.Fprintf(a.Stderr, "berth: %d directories were left out: not readable, or too deep\n", skipped)
	}
	return out.Flush()
}

// truePath returns the path with its bytes.
func truePath(fi proto.FileInfo) string {
	if fi.RawPath != nil {
		return string(fi.RawPath)
	}
	return fi.Path
}

// letters are the marks of types in long lists.
var letters = map[proto.FileType]string{proto.TypeFile: "-", proto.TypeDirectory: "d", proto.TypeSymlink: "l",
	proto.TypeOther: "?"}

// longLine describes an entry on one line.
func longLine(fi proto.FileInfo) string {
	line := fmt.Sprintf("%s %s %-8s %-8s %9s  %s  %s", letters[fi.Type], fi.Mode, nameOr(fi.Owner, fi.UID),
		nameOr(fi.Group, fi.GID), term.Size(fi.SizeBytes), fi.ModifiedAt.Local().Format(time.DateTime), fi.Path)
	if fi.Type == proto.TypeSymlink {
		line += " -> " + fi.Target
	}
	return term.Printable(line)
}

func nameOr(name string, id uint32) string {
	if name == "" {
		return fmt.Sprint(id)
	}
	return name
}
