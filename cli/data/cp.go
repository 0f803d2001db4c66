package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/pack"
	"berth/cli/term"
	"berth/cli/unpack"
	"berth/client"
	"berth/proto"
)

// CopyCommand returns `berth cp`. It follows docker's rules for destinations, which users know.
func CopyCommand(a *app.App) *cobra.Command {
	var user string
	var adds, keeps bool
	cmd := &cobra.Command{
		Use: "cp [flags] SRC DST", Short: "Copy files and directories between here and a container",
		Long: `Copy a file or directory. One of SRC and DST is CONTAINER:PATH, the other is a local path. A relative PATH in
the container is below /workspace. If the destination is a directory, the copy in it has the name of the source.
DIR/. means the contents of a directory.

"-" is standard input or output. From a container, a file is written unchanged and a directory as a tar archive. To a
container, the input becomes the file DST. If DST is a directory, the input is unpacked there as a tar archive.

Owners are not kept. Nothing is written outside DST. Pipes, sockets and devices in a directory are left out, and so are
links that lead out of a directory on its way into a container. Their names are printed on standard error. The exit
status is 0 nevertheless. Files in a directory that cannot be read are named there too. The rest is copied, and the exit
status is 2. If a file cannot be read to its end, its copy has zeros in place of the rest.`,
		Example: `  berth cp data.csv CONTAINER:inputs/
  berth cp CONTAINER:/workspace/report ./report
  berth cp CONTAINER:/workspace - | tar t`,
		Args: app.ArgCount(2, 2), ValidArgsFunction: completeCopy(a),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			var in *proto.InPlace
			if adds || keeps {
				in = &proto.InPlace{Append: adds, Truncate: keeps}
			}
			return copyPath(ctx, a, c, user, in, args[0], args[1])
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", proto.UserDefault, "owner of the files in the container: user, root, "+
		"or another NAME[:GROUP]")
	cmd.Flags().BoolVar(&adds, "append", false, "into a container: add to the end of the file DST")
	cmd.Flags().BoolVar(&keeps, "in-place", false, "into a container: write into the file DST without replacing it, "+
		"so that programs that have it open see the change; not atomic")
	cmd.MarkFlagsMutuallyExclusive("append", "in-place")
	// Nothing reads these two: they are for hands that are used to cp.
	cmd.Flags().BoolP("recursive", "r", false, "copy directories whole, as is done without it")
	cmd.Flags().BoolP("archive", "a", false, "keep permissions, times and links, as is done without it; owners are "+
		"never kept")
	return a.AddQuietFlag(cmd, "show no progress")
}

// A place is one end of a copy. It is only parsed; its existence is checked later.
type place struct {
	container string // "" for this machine
	path      string // as given; a local "-" is standard input or output
}

// parsePlace parses CONTAINER:PATH or a local path. An argument that begins like a path is local, even with a colon.
// A local path with a colon is written as ./a:b.
func parsePlace(arg string) place {
	container, in, ok := strings.Cut(arg, ":")
	if !ok || container == "" || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") ||
		strings.Contains(container, "/") {
		return place{path: arg}
	}
	return place{container, in}
}

// copyPath finds out which end is local, and copies. For a copy between containers the user has to use a pipe,
// because the daemon cannot do it in one step.
func copyPath(ctx context.Context, a *app.App, c *client.Client, user string, in *proto.InPlace, from, to string) (
	err error) {
	src, dst := parsePlace(from), parsePlace(to)
	switch {
	case src.container != "" && dst.container != "":
		return proto.Errorf(proto.InvalidArgument, "", "dst", "both are in containers; copy to a directory here "+
			"first, or pipe: berth cp A:DIR - | berth cp - B:DIR/")
	case src.container == "" && dst.container == "":
		return proto.Errorf(proto.InvalidArgument, "", "dst", "neither is in a container; write one as CONTAINER:PATH")
	}
	if in != nil && dst.container == "" {
		return proto.Errorf(proto.InvalidArgument, "", "dst", "--append and --in-place are for a file in a container")
	}
	cp := &copying{App: a, bar: a.NewProgress(), in: in}
	defer cp.bar.End()
	// One of the two is empty.
	name := src.container + dst.container
	id, err := a.FindContainer(ctx, c, name)
	if err != nil {
		return err
	}
	cp.fs = c.FS(id, user)
	do := func() error { return cp.upload(ctx, src.path, dst.path) }
	if src.container != "" {
		do = func() error { return cp.download(ctx, src.path, dst.path) }
	}
	if src.path == "-" || dst.path == "-" || in != nil && in.Append { // a pipe cannot begin again
		return do()
	}
	// A file appears whole or not at all, and a directory that is copied again gets the same files.
	return a.RetryWhileDown(ctx, func() (on bool, err error) { return false, do() })
}

// A copying is one run of `berth cp`.
type copying struct {
	*app.App
	fs  client.FS
	bar *term.Progress
	in  *proto.InPlace // nil: replace the file
	// some files could not be read
	incomplete bool
}

// inside returns the path inside the container.
func inside(p string) string {
	if !path.IsAbs(p) {
		p = proto.WorkspaceDir + "/" + p
	}
	return path.Clean(p)
}

// contents reports whether a path means the contents of a directory and not the directory. It looks at the text as
// typed, because cleaning a path removes "/.".
func contents(p string) bool { return p == "." || strings.HasSuffix(p, "/.") }

// download copies from the container to this machine. A file is sent by itself, with its mode and time, and a
// directory as an archive.
func (cp *copying) download(ctx context.Context, src, dst string) error {
	fi, err := cp.fs.Stat(ctx, inside(src))
	if err != nil {
		return err
	}
	if fi.Type == proto.TypeDirectory {
		return cp.downloadDir(ctx, src, dst)
	}
	d, err := cp.fs.Read(ctx, inside(src))
	if err != nil {
		return err
	}
	defer d.Close()
	r := cp.bar.Reader(d, path.Base(inside(src)), d.Size)
	if dst == "-" {
		_, err := io.Copy(cp.Stdout, r)
		return err
	}
	target, err := fileTarget(dst, path.Base(inside(src)))
	if err != nil {
		return err
	}
	return Save(target, r, d.Mode, d.Modified)
}

// downloadDir copies a directory to this machine as a tar archive. The archive is not trusted; see package unpack.
// The daemon builds the archive while sending, so its size is unknown, and so is the end of the progress bar.
func (cp *copying) downloadDir(ctx context.Context, src, dst string) error {
	d, err := cp.fs.Tar(ctx, inside(src))
	if err != nil {
		return err
	}
	defer d.Close()
	r := cp.bar.Reader(d, path.Base(inside(src)), d.Size)
	if err := cp.receive(r, src, dst); err != nil {
		return err
	}
	// The trailer says the same as the notes in the archive.
	if u := d.Unread(); u != nil && u.Count > 0 {
		cp.incomplete = true
	}
	return cp.status()
}

// statusIncomplete is the exit status of a copy that lacks files that could not be read, as that of GNU tar.
const statusIncomplete = 2

// status ends a copy that is otherwise complete.
func (cp *copying) status() error {
	if cp.incomplete {
		return app.ExitError{Status: statusIncomplete}
	}
	return nil
}

// receive unpacks the archive of the directory src at its destination.
func (cp *copying) receive(r io.Reader, src, dst string) error {
	note := func(why proto.ArchiveNote, name string) { cp.note(name, reasons[why]) }
	if dst == "-" {
		return unpack.Read(io.TeeReader(r, cp.Stdout), note)
	}
	fi, err := os.Stat(dst)
	switch {
	case err == nil && !fi.IsDir():
		return proto.Errorf(proto.InvalidArgument, "", dst, "%s is a file, and a directory cannot replace it", dst)
	// The root directory has no name for a directory in dst.
	case err == nil && !contents(src) && inside(src) != "/":
		dst = filepath.Join(dst, path.Base(inside(src)))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// Only the last part of the path is created: a mistyped path should not create a tree. A link there is followed
	// only if it is the user's own.
	if err := os.Mkdir(dst, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return unpack.Tar(dst, r, note)
}

// reasons are the reasons for the notes of an archive.
var reasons = map[proto.ArchiveNote]pack.Reason{proto.ArchiveLeftOut: pack.NoFile,
	proto.ArchiveUnreadable: pack.Unread, proto.ArchiveIncomplete: pack.Cut}

// note reports a file that is not copied, or a part of it only.
func (cp *copying) note(name string, why pack.Reason) {
	what := "left out"
	if why == pack.Cut {
		what = "copied only a part of"
	}
	cp.incomplete = cp.incomplete || why == pack.Unread || why == pack.Cut
	fmt.Fprintf(cp.Stderr, "berth: %s %s: %s\n", what, term.Printable(name), why)
}

// fileTarget returns the path for a file called name: in dst if dst is a directory. If dst ends with a slash, it must
// be an existing directory.
func fileTarget(dst, name string) (string, error) {
	fi, err := os.Stat(dst)
	switch {
	// A container or an uploader may have chosen the name. It must not lead out of dst.
	case err == nil && fi.IsDir() && (name == "." || name == ".." || strings.ContainsAny(name, "/\x00")):
		return "", proto.Errorf(proto.InvalidArgument, "", name, "%q is no name for a file here; name the destination",
			name)
	case err == nil && fi.IsDir():
		return filepath.Join(dst, name), nil
	case err != nil && strings.HasSuffix(dst, "/"):
		return "", proto.Errorf(proto.NotFound, "", dst, "there is no directory %s", dst)
	}
	return dst, nil
}

// Save writes a download to a file atomically. It writes into a special file, such as /dev/null or a pipe, and does
// not replace it. A mode of 0 means 0644, a zero time means now.
func Save(target string, r io.Reader, mode uint32, modified time.Time) error {
	// A link of the user is kept, and its target gets the content.
	if real, err := filepath.EvalSymlinks(target); err == nil {
		target = real
	}
	if fi, err := os.Stat(target); err == nil && !fi.Mode().IsRegular() {
		f, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(f, r)
		return err
	}
	// In the same directory, because a rename does not cross file systems.
	f, err := os.CreateTemp(filepath.Dir(target), ".berth-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails harmlessly after the rename
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o644
	}
	// The error of Close matters: some file systems report a full disk only then.
	if err := errors.Join(f.Chmod(fs.FileMode(mode)), f.Close()); err != nil {
		return err
	}
	if !modified.IsZero() {
		_ = os.Chtimes(f.Name(), time.Time{}, modified) // a wrong time is no reason to fail
	}
	return os.Rename(f.Name(), target)
}

// upload copies from this machine to the container. It follows links, because local links are the user's own.
func (cp *copying) upload(ctx context.Context, src, dst string) error {
	if src == "-" {
		return cp.uploadStdin(ctx, dst)
	}
	fi, err := os.Stat(src)
	if err != nil {
		return err
	}
	target, err := cp.target(ctx, dst, filepath.Base(src), contents(src))
	if err != nil {
		return err
	}
	if fi.IsDir() && cp.in != nil {
		return proto.Errorf(proto.InvalidArgument, "", src, "%s is a directory; --append and --in-place are for a file",
			src)
	}
	if fi.IsDir() {
		return cp.uploadDir(ctx, src, target)
	}
	// A pipe or device may never end, or reading it may have effects. Users can pass it as standard input explicitly.
	if !fi.Mode().IsRegular() {
		return proto.Errorf(proto.InvalidArgument, "", src, "%s is neither a file nor a directory; send it with: "+
			"berth cp - CONTAINER:PATH < %s", src, src)
	}
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	// The file may grow meanwhile. Only its size at the start is sent.
	body := io.LimitReader(cp.bar.Reader(f, filepath.Base(src), fi.Size()), fi.Size())
	return cp.write(ctx, target, uint32(fi.Mode().Perm()), body, fi.Size())
}

// uploadStdin stores standard input as a file, or unpacks it as an archive if the destination is a directory. The
// size of a stream is unknown, so it is sent in chunks, and the progress bar has no end.
func (cp *copying) uploadStdin(ctx context.Context, dst string) error {
	dir, err := cp.isDir(ctx, dst)
	if err != nil {
		return err
	}
	r := cp.bar.Reader(os.Stdin, "standard input", -1)
	if dir || strings.HasSuffix(dst, "/") || dst == "" {
		return cp.fs.Untar(ctx, inside(dst), r)
	}
	return cp.write(ctx, inside(dst), 0, r, 0)
}

// write stores a file, or writes into one that is there. A size of 0 is unknown.
func (cp *copying) write(ctx context.Context, target string, mode uint32, r io.Reader, size int64) (err error) {
	if cp.in != nil {
		_, err = cp.fs.WriteInPlace(ctx, target, *cp.in, r, size)
	} else {
		_, err = cp.fs.Write(ctx, target, mode, r, size)
	}
	return err
}

// uploadDir sends a directory as a tar archive.
func (cp *copying) uploadDir(ctx context.Context, src, target string) error {
	err := pack.Stream(src, cp.note, func(r io.Reader) error {
		return cp.fs.Untar(ctx, target, cp.bar.Reader(r, filepath.Base(src), -1))
	})
	if err != nil {
		return err
	}
	return cp.status()
}

// target returns the path for an item called name: in dst if dst is a directory.
func (cp *copying) target(ctx context.Context, dst, name string, contents bool) (string, error) {
	dir, err := cp.isDir(ctx, dst)
	if err != nil || contents || !dir && !strings.HasSuffix(dst, "/") && dst != "" {
		return inside(dst), err
	}
	// The source has no name of its own, so its contents are copied.
	if name == "." || name == ".." || name == "/" {
		return inside(dst), nil
	}
	return path.Join(inside(dst), name), nil
}

// isDir reports whether a path in the container is a directory or a link to one.
func (cp *copying) isDir(ctx context.Context, p string) (bool, error) {
	fi, err := cp.fs.Stat(ctx, inside(p))
	if err == nil && fi.Type == proto.TypeSymlink {
		return fi.TargetType == proto.TypeDirectory, nil
	}
	// A missing path is an answer. A missing container is an error.
	if proto.CodeOf(err) == proto.NotFound && !strings.HasPrefix(proto.AsError(err).Item, proto.ContainerPrefix) {
		return false, nil
	}
	return err == nil && fi.Type == proto.TypeDirectory, err
}

// completeCopy suggests containers with a colon for the path, and local files.
func completeCopy(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		all, _ := a.Suggest(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
			return app.SuggestContainers(ctx, c, ":")
		})(cmd, args, toComplete)
		// Default makes the shell add local files. Once a container matches, no space follows the colon, because the
		// path does.
		if toComplete == "" || len(all) == 0 {
			return all, cobra.ShellCompDirectiveDefault
		}
		return all, cobra.ShellCompDirectiveNoSpace
	}
}
