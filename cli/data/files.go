package data

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// FilesCommand returns `berth files`. It is separate from `berth cp`, because a stored file belongs to an owner and
// not to a container.
func FilesCommand(a *app.App) *cobra.Command {
	files := fileNoun(a)
	return app.NewGroup(&cobra.Command{
		Use: "files", Short: "Stored files",
		Long: "Stored files have an ID and outlive containers. A container can have uploaded files in its " +
			"$INPUT_DIR; files that commands write to $OUTPUT_DIR are stored.",
	}, files.ListCommand(a), filesPutCommand(a), filesGetCommand(a), filesInfoCommand(a), files.RemoveCommand(a))
}

// filesPutCommand returns `berth files put`. It prints each ID as soon as the file is stored, so that a later error
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
				// JSON is printed at the end, as one value.
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
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}

// UploadFile stores one local file. It streams the file and keeps nothing in memory. If the file grows meanwhile,
// only its size at the start is stored.
func UploadFile(ctx context.Context, a *app.App, c *client.Client, path string, up client.Upload) (client.File, error) {
	// The size of standard input is unknown, so the progress bar has no end.
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
		// A directory can be opened but not read, and the error of the read would be unclear.
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
	// Standard input without a name is sent unnamed. The daemon then chooses the name.
	up.Body, up.Size = bar.Reader(in, up.Name, size), max(0, size)
	f, err := c.UploadFile(ctx, up)
	if proto.CodeOf(err) == proto.TooLarge {
		err = tooLarge(ctx, c, path, err)
	}
	return f, err
}

// tooLarge returns an error with the maximum size of a stored file. err has another number: it is about the form that
// contains the file.
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

// filesGetCommand returns `berth files get`. It replaces no file without -f, because the uploader chose the name.
func filesGetCommand(a *app.App) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "get [flags] FILE [DST]", Short: "Download a stored file", Args: app.ArgCount(1, 2),
		ValidArgsFunction: a.CompleteFiles(),
		Long: "Download a stored file, given by its ID or its filename. Without DST it is written to the current " +
			"directory\nunder its filename, without the directories of that. \"-\" is standard output.",
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

// fetchFile downloads one stored file. The name comes from an unknown uploader, so it can only name a file in the
// destination directory.
func fetchFile(ctx context.Context, a *app.App, c *client.Client, id, dst string, force bool) error {
	// Get the name first, to check whether the file may be written before its content is sent.
	info, err := c.File(ctx, id)
	if err != nil {
		return err
	}
	target := dst
	if dst != "-" {
		if target, err = fileTarget(cmp.Or(dst, "."), path.Base(info.Filename)); err != nil {
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
	// A stored file has no mode, and its time is that of the upload. It gets the mode and time of a new file.
	if err := Save(target, in, 0, time.Time{}); err != nil {
		return err
	}
	bar.End()
	// The uploader chose the name, so the user sees it.
	if !a.Quiet && dst == "" {
		fmt.Fprintln(a.Stderr, term.Printable(target))
	}
	return nil
}

// loses reports whether writing target would lose something: an ordinary file, or a dangling link, which would become
// a file. It follows links as save does. A device such as /dev/null loses nothing.
func loses(target string) bool {
	if _, err := os.Lstat(target); err != nil {
		return false
	}
	fi, err := os.Stat(target)
	return err != nil || fi.Mode().IsRegular()
}

// filesInfoCommand returns `berth files info`. It prints no table, because the fields would not fit a line of `ls`.
func filesInfoCommand(a *app.App) *cobra.Command {
	return a.AddFormatFlags(&cobra.Command{
		Use: "info FILE…", Short: "Print details of stored files as JSON", Args: app.ArgCount(1, -1),
		ValidArgsFunction: a.CompleteFiles(),
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
	})
}

// fileNoun returns the commands that list and remove stored files. A removal keeps copies in a container's
// $INPUT_DIR, because they are ordinary files.
func fileNoun(a *app.App) app.Noun[client.File] {
	return app.Noun[client.File]{
		ListShort: "List stored files, newest first", List: (*client.Client).Files, Quiet: "print IDs only",
		Columns: term.Columns[client.File]{
			Head: []string{"ID", "NAME", "TYPE", "SIZE", "CREATED", "EXPIRES IN"},
			Row: func(f client.File) []string {
				expires := "never"
				if f.ExpiresAt != nil {
					expires = term.Left(f.ExpiresAt.Time)
				}
				return []string{f.ID, f.Filename, f.MIMEType, term.Size(f.SizeBytes), term.Ago(f.CreatedAt.Time),
					expires}
			},
		},
		Argument: "FILE", RemoveShort: "Delete stored files", Complete: a.CompleteFiles(), Find: a.FindFile,
		Remove: (*client.Client).DeleteFile,
	}
}
