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

// CopyCommand is `berth cp`. It follows docker's rules for what goes where, which people have in their fingers.
func CopyCommand(a *app.App) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use: "cp [flags] SRC DST", Short: "Copy files and directories between here and a container",
		Long: `Copy a file or directory. One of SRC and DST is CONTAINER:PATH, the other a path here; a path that is not
absolute is below /workspace. A destination that is a directory receives the source under its own name, and DIR/. stands for
what a directory holds.

"-" is standard input or output. From a container, a file is written as it is and a directory as a tar archive; to a
container, the input becomes the file DST, or is unpacked as a tar archive if DST is a directory.

Owners are not kept. What a container made is never written outside DST. Of a directory, pipes, sockets and devices are left out, and on the
way into a container links that lead out of it too; each is named on standard error, and the exit status is 0 all the same.`,
		Example: `  berth cp data.csv CONTAINER:inputs/
  berth cp CONTAINER:/workspace/report ./report
  berth cp CONTAINER:/workspace - | tar t`,
		Args: app.ArgCount(2, 2), ValidArgsFunction: completeCopy(a),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			return copyPath(ctx, a, c, user, args[0], args[1])
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", proto.UserDefault, "owner of the files in the container: user or root")
	return a.AddQuietFlag(cmd, "show no progress")
}

// A place is one end of a copy.
// It is only parsed: whether there is such a container or file is asked later.
type place struct {
	container string // "" is here
	path      string // as it was given; "-" here is standard input or output
}

// parsePlace tells CONTAINER:PATH from a path. What begins like a path is one, whatever else it holds.
// A path with a colon in it is written as ./a:b.
func parsePlace(arg string) place {
	container, in, ok := strings.Cut(arg, ":")
	if !ok || container == "" || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") ||
		strings.Contains(container, "/") {
		return place{path: arg}
	}
	return place{container, in}
}

// copyPath sorts out which end is here. Copies between containers are left to a pipe: the daemon has no part that
// does it in one step.
func copyPath(ctx context.Context, a *app.App, c *client.Client, user, from, to string) (err error) {
	src, dst := parsePlace(from), parsePlace(to)
	switch {
	case src.container != "" && dst.container != "":
		return proto.Errorf(proto.InvalidArgument, "", "dst", "both are in containers; copy to a directory here "+
			"first, or pipe: berth cp A:DIR - | berth cp - B:DIR/")
	case src.container == "" && dst.container == "":
		return proto.Errorf(proto.InvalidArgument, "", "dst", "neither is in a container; write one as CONTAINER:PATH")
	}
	cp := &copying{App: a, bar: a.NewProgress()}
	defer cp.bar.End()
	// One of the two is empty.
	name := src.container + dst.container
	id, err := a.FindContainer(ctx, c, name)
	if err != nil {
		return err
	}
	cp.fs = c.FS(id, user)
	if src.container != "" {
		return cp.download(ctx, src.path, dst.path)
	}
	return cp.upload(ctx, src.path, dst.path)
}

// A copying is one `berth cp`.
type copying struct {
	*app.App
	fs  client.FS
	bar *term.Progress
}

// inside is a path in the container.
func inside(p string) string {
	if !path.IsAbs(p) {
		p = proto.WorkspaceDir + "/" + p
	}
	return path.Clean(p)
}

// contents reports whether a path means what a directory holds, not the directory.
// The question has to be asked of the text: cleaning a path takes "/." away.
func contents(p string) bool { return p == "." || strings.HasSuffix(p, "/.") }

// download copies from the container to here.
// What it is decides how it travels: a file by itself, with its mode and time, a directory as an
// archive.
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
	return save(target, r, d.Mode, d.Modified)
}

// downloadDir copies a directory to here, by way of a tar archive, whose maker is not trusted; see package unpack.
// The daemon makes the archive while it is sent, so its size is not known and the bar has no end.
func (cp *copying) downloadDir(ctx context.Context, src, dst string) error {
	d, err := cp.fs.Tar(ctx, inside(src))
	if err != nil {
		return err
	}
	defer d.Close()
	r := cp.bar.Reader(d, path.Base(inside(src)), d.Size)
	return cp.receive(r, src, dst)
}

// receive puts the archive of the directory src where it belongs.
func (cp *copying) receive(r io.Reader, src, dst string) error {
	leftOut := func(name string) { cp.leftOut(name, pack.NoFile) }
	if dst == "-" {
		return unpack.Read(io.TeeReader(r, cp.Stdout), leftOut)
	}
	fi, err := os.Stat(dst)
	switch {
	case err == nil && !fi.IsDir():
		return proto.Errorf(proto.InvalidArgument, "", dst, "%s is a file, and a directory cannot replace it", dst)
	// The root directory has no name to be received under.
	case err == nil && !contents(src) && inside(src) != "/":
		dst = filepath.Join(dst, path.Base(inside(src)))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// Only the last part is made: a mistyped path is no wish for a tree, and a link that stands there is followed
	// only if it is the user's own.
	if err := os.Mkdir(dst, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return unpack.Tar(dst, r, leftOut)
}

// leftOut tells of what is not copied, which is no error.
func (cp *copying) leftOut(name, why string) {
	fmt.Fprintf(cp.Stderr, "berth: left out %s: %s\n", term.Printable(name), why)
}

// fileTarget is where a file goes that is called name: into dst if that is a directory.
// A slash at the end says that a directory is meant, which then has to be there.
func fileTarget(dst, name string) (string, error) {
	fi, err := os.Stat(dst)
	switch {
	// The name may have been chosen in a container or by an uploader: it must not lead out of dst.
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

// save writes a download to a file, whole or not at all. What is no ordinary file, such as /dev/null or a pipe, is
// written into and not replaced. A mode of 0 is 0644, a zero time now.
func save(target string, r io.Reader, mode uint32, modified time.Time) error {
	// A link of the user's own keeps its place, and the file behind it gets the content.
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
	// In the same directory, since a rename does not cross file systems.
	f, err := os.CreateTemp(filepath.Dir(target), ".berth-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already if all went well
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o644
	}
	// The error of Close counts: some file systems tell of a full disk only then.
	if err := errors.Join(f.Chmod(fs.FileMode(mode)), f.Close()); err != nil {
		return err
	}
	if !modified.IsZero() {
		_ = os.Chtimes(f.Name(), time.Time{}, modified) // a file with another time is still the file
	}
	return os.Rename(f.Name(), target)
}

// uploadFile copies from here to the container.
// A link here is followed: it is the user's own, unlike those in a container.
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
	if fi.IsDir() {
		return cp.uploadDir(ctx, src, target)
	}
	// A pipe or device may never end, or have effects by being read; by way of standard input it
	// is the user's clear wish.
	if !fi.Mode().IsRegular() {
		return proto.Errorf(proto.InvalidArgument, "", src, "%s is neither a file nor a directory; send it with: "+
			"berth cp - CONTAINER:PATH < %s", src, src)
	}
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	// A file may grow while it is sent; what it was when it was opened is sent.
	body := io.LimitReader(cp.bar.Reader(f, filepath.Base(src), fi.Size()), fi.Size())
	_, err = cp.fs.Write(ctx, target, uint32(fi.Mode().Perm()), body, fi.Size())
	return err
}

// uploadStdin stores standard input as a file, or unpacks it where the destination is a directory: then there is
// nothing else it could mean. Of a stream nobody knows the size, so it goes in chunks and the bar has no end.
func (cp *copying) uploadStdin(ctx context.Context, dst string) error {
	dir, err := cp.isDir(ctx, dst)
	if err != nil {
		return err
	}
	r := cp.bar.Reader(os.Stdin, "standard input", -1)
	if dir || strings.HasSuffix(dst, "/") || dst == "" {
		return cp.fs.Untar(ctx, inside(dst), r)
	}
	_, err = cp.fs.Write(ctx, inside(dst), 0, r, 0)
	return err
}

// uploadDir sends a directory as a tar archive.
func (cp *copying) uploadDir(ctx context.Context, src, target string) error {
	return pack.Stream(src, cp.leftOut, func(r io.Reader) error {
		return cp.fs.Untar(ctx, target, cp.bar.Reader(r, filepath.Base(src), -1))
	})
}

// target is where something called name goes: into dst if that is a directory.
func (cp *copying) target(ctx context.Context, dst, name string, contents bool) (string, error) {
	dir, err := cp.isDir(ctx, dst)
	if err != nil || contents || !dir && !strings.HasSuffix(dst, "/") && dst != "" {
		return inside(dst), err
	}
	// The source has no name of its own; what it holds is meant.
	if name == "." || name == ".." || name == "/" {
		return inside(dst), nil
	}
	return path.Join(inside(dst), name), nil
}

// isDir reports whether a path of the container is a directory. A link counts as what it points to.
func (cp *copying) isDir(ctx context.Context, p string) (bool, error) {
	fi, err := cp.fs.Stat(ctx, inside(p))
	// Stat does not follow links and List does: where it succeeds, there is a directory behind the
	// link.
	if err == nil && fi.Type == proto.TypeSymlink {
		_, err = cp.fs.List(ctx, inside(p))
		return err == nil, nil
	}
	// Not found may be the path, which is an answer, or the container, which is an error.
	if proto.CodeOf(err) == proto.NotFound && !strings.HasPrefix(proto.AsError(err).Item, proto.ContainerPrefix) {
		return false, nil
	}
	return err == nil && fi.Type == proto.TypeDirectory, err
}

// completeCopy suggests containers with the colon that a path follows, beside the files here.
func completeCopy(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		all, _ := a.Suggest(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
			return app.SuggestContainers(ctx, c, ":")
		})(cmd, args, toComplete)
		// Default lets the shell add the files here. Once a container fits, no space follows the
		// colon: the path does.
		if toComplete == "" || len(all) == 0 {
			return all, cobra.ShellCompDirectiveDefault
		}
		return all, cobra.ShellCompDirectiveNoSpace
	}
}
