package data

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// FilesCommand is `berth files`.
// It is a group of its own and no part of `berth cp`, since stored files belong to an owner and
// not to a container.
func FilesCommand(a *app.App) *cobra.Command {
	files := fileNoun(a)
	return app.NewGroup(&cobra.Command{
		Use: "files", Short: "Stored files",
		Long: "Stored files have an ID and outlive containers. A container can have uploaded files in its $INPUT_DIR; " +
			"files that commands write to $OUTPUT_DIR are stored.",
	}, files.ListCommand(a), filesPutCommand(a), filesGetCommand(a), filesInfoCommand(a), files.RemoveCommand(a))
}

// filesPutCommand is `berth files put`. Each ID is printed as soon as the file is stored, so that a failure later
// does not hide it.
func filesPutCommand(a *app.App) *cobra.Command {
	var up client.Upload
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "put [flags] FILE…", Short: "Store files and print their IDs", Args: app.ArgCount(1, -1),
		Long: `Store files and print their IDs. "-" is standard input.`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if up.Name != "" && len(args) > 1 {
				return proto.Errorf(proto.InvalidArgument, "", "name", "--name is for one file, and there are %d",
					len(args))
			}
			if up.ExpiresInSeconds, err = term.ParseSeconds("expires", expires); err != nil {
				return err
			}
			var stored []client.File
			for _, name := range args {
				f, err := UploadFile(ctx, a, c, name, up)
				if err != nil {
					return err
				}
				// JSON comes at the end, as one value.
				if stored = append(stored, f); !a.JSON {
					if err := a.PrintIDs(f.ID); err != nil {
						return err
					}
				}
			}
			if a.JSON {
				return a.PrintJSON(stored)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&up.Name, "name", "", "filename in the store (default: the file's own)")
	cmd.Flags().StringVar(&up.MediaType, "type", "", "media type (default: detected)")
	cmd.Flags().DurationVar(&expires, "expires", 0, "delete it after this time, 1h to 2160h")
	return a.AddJSONFlag(a.AddQuietFlag(cmd, "show no progress"))
}

// UploadFile stores one file of this machine's.
// Nothing is held in memory; what is read is sent. Of a file that grows meanwhile, what it had at first is stored.
func UploadFile(ctx context.Context, a *app.App, c *client.Client, path string, up client.Upload) (client.File, error) {
	// Nobody knows how much standard input will give, so the bar has no end to show.
	in, size := os.Stdin, int64(-1)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return client.File{}, err
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			return client.File{}, err
		}
		// Opening a directory works and reading it does not, with an error that says little.
		if fi.IsDir() {
			return client.File{}, proto.Errorf(proto.InvalidArgument, "", path,
				"%s is a directory; only files can be stored", path)
		}
		in, size = f, fi.Size()
	}
	if up.Name == "" && path != "-" {
		up.Name = filepath.Base(path)
	}
	bar := a.NewProgress()
	defer bar.End()
	// Standard input without a name goes out unnamed; the daemon then names it.
	up.Body, up.Size = bar.Reader(in, up.Name, size), max(0, size)
	f, err := c.UploadFile(ctx, up)
	if proto.CodeOf(err) == proto.TooLarge {
		err = tooLarge(ctx, c, path, err)
	}
	return f, err
}

// tooLarge says how large a stored file may be. What the daemon refused was the form around it, and the number in err
// is that of the form.
func tooLarge(ctx context.Context, c *client.Client, path string, err error) error {
	info, ierr := c.Info(ctx)
	if ierr != nil || info.MaxFileBytes == 0 {
		return err
	}
	if path == "-" {
		path = "standard input"
	}
	return proto.Errorf(proto.TooLarge, "", path, "%s is too large: this daemon stores files of at most %d bytes "+
		"(%s); `berth cp` copies larger ones into a container", path, info.MaxFileBytes, term.Size(info.MaxFileBytes))
}

// filesGetCommand is `berth files get`.
// It replaces nothing without -f: the name comes from whoever stored the file.
func filesGetCommand(a *app.App) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "get [flags] FILE [DST]", Short: "Download a stored file", Args: app.ArgCount(1, 2),
		ValidArgsFunction: a.CompleteFiles,
		Long:              `Download a stored file, named by its ID or its filename. It keeps its name in the current directory unless DST says otherwise; "-" is standard output.`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := a.FindFile(ctx, c, args[0])
			if err != nil {
				return err
			}
			dst := ""
			if len(args) > 1 {
				dst = args[1]
			}
			return fetchFile(ctx, a, c, id, dst, force)
		}),
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "replace an existing local file")
	return a.AddQuietFlag(cmd, "show no progress")
}

// fetchFile downloads one stored file. Its name was given by who knows whom, so it may name a file in the destination
// and nothing else.
func fetchFile(ctx context.Context, a *app.App, c *client.Client, id, dst string, force bool) error {
	// Asked first, for its name: whether it may be written here is known before its content comes.
	info, err := c.File(ctx, id)
	if err != nil {
		return err
	}
	target := dst
	if dst != "-" {
		if target, err = fileTarget(orDot(dst), info.Filename); err != nil {
			return err
		}
		if !force && loses(target) {
			return proto.Errorf(proto.AlreadyExists, "", target, "%s is here already; -f replaces it", target)
		}
	}
	d, err := c.FileContent(ctx, id)
	if err != nil {
		return err
	}
	defer d.Close()
	bar := a.NewProgress()
	defer bar.End()
	in := bar.Reader(d, info.Filename, d.Size)
	if dst == "-" {
		_, err := io.Copy(a.Stdout, in)
		return err
	}
	// A stored file has no mode of its own, and its time is when it was stored; so it gets what a
	// new file gets.
	if err := save(target, in, 0, time.Time{}); err != nil {
		return err
	}
	bar.End()
	// The name came from whoever stored it, so the user is told what it was.
	if !a.Quiet && dst == "" {
		fmt.Fprintln(a.Stderr, term.Printable(target))
	}
	return nil
}

// loses reports whether something is lost where target is written: an ordinary file, or a link that leads nowhere,
// which would become one. What is behind a link counts, as save follows it; /dev/null has nothing to lose.
func loses(target string) bool {
	if _, err := os.Lstat(target); err != nil {
		return false
	}
	fi, err := os.Stat(target)
	return err != nil || fi.Mode().IsRegular()
}

// orDot is dst, or the current directory.
func orDot(dst string) string {
	if dst == "" {
		return "."
	}
	return dst
}

// filesInfoCommand is `berth files info`.
// It has no table: what does not fit a line of `ls` is better read by name.
func filesInfoCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "info FILE…", Short: "Print details of stored files as JSON", Args: app.ArgCount(1, -1),
		ValidArgsFunction: a.CompleteFiles,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			var list []client.File
			for _, name := range args {
				id, err := a.FindFile(ctx, c, name)
				if err != nil {
					return err
				}
				f, err := c.File(ctx, id)
				if err != nil {
					return err
				}
				list = append(list, f)
			}
			return a.PrintJSON(list)
		}),
	}
}

// fileNoun lists and removes stored files. Copies in a container's $INPUT_DIR stay: they are ordinary files there.
func fileNoun(a *app.App) app.Noun[client.File] {
	return app.Noun[client.File]{
		ListShort: "List stored files, newest first", List: (*client.Client).Files, Quiet: "print IDs only",
		Head: []string{"ID", "NAME", "TYPE", "SIZE", "CREATED", "EXPIRES IN"},
		Row: func(f client.File) []string {
			expires := "never"
			if f.ExpiresAt != nil {
				expires = term.Left(f.ExpiresAt.Time)
			}
			return []string{f.ID, f.Filename, f.MIMEType, term.Size(f.SizeBytes), term.Ago(f.CreatedAt.Time), expires}
		},
		Argument: "FILE", RemoveShort: "Delete stored files", Complete: a.CompleteFiles, Find: a.FindFile,
		Remove: (*client.Client).DeleteFile,
	}
}
