package data

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"

	sandboximage "berth/sandbox-image"
)

// ImageCommand returns `berth image`.
func ImageCommand(a *app.App) *cobra.Command {
	images := imageNoun(a)
	return app.NewGroup(&cobra.Command{Use: "image", Aliases: []string{"images"},
		Short: "Images of containers"},
		images.ListCommand(a), imageBuildCommand(a), imageBuildsCommand(a), imageCancelCommand(a),
		imageDockerfileCommand(a), imageImportCommand(a),
		imagePullCommand(a), imagePushCommand(a), imageLoginCommand(a), imageLogoutCommand(a),
		imageRegistriesCommand(a), images.RemoveCommand(a))
}

// shortDigest returns the first 12 characters of a digest, as docker shows them. That is enough to distinguish
// images.
func shortDigest(d string) string {
	return term.Short(strings.TrimPrefix(d, "sha256:"), 13)
}

// imageBuildCommand returns `berth image build`. The build runs on this machine as the calling user, and the daemon
// gets only the result. So the daemon needs no package tools.
func imageBuildCommand(a *app.App) *cobra.Command {
	o := sandboximage.Options{Name: "base"}
	var verbose bool
	var docker dockerBuild
	var own, dockers []string // flags of one of the two kinds of build
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use: "build [flags] [NAME | DIRECTORY]", Short: "Build an image from a Dockerfile, or one of berth's own",
		Args: app.ArgCount(0, 1),
		Long: `Build an image. With a directory, the daemon builds the Dockerfile in it, with the directory as its context. "-"
is a context from standard input: a tar, which may be compressed. What a .dockerignore names is not sent.

Each RUN runs in a sandbox of the daemon, which has no network unless --network or --allow gives it one. The daemon
pulls base images that it does not have. Finished steps stay in a cache, so the next build runs only what has changed.
If the command is interrupted, the build ends. If the daemon restarts, the build begins anew, unless its context comes
from standard input; steps that had finished are in the cache.

With the name of one of berth's own images, build that from Debian packages, without a registry of images, and import
it into the daemon. This build runs on this machine and needs root. If the archive of an earlier build fits, it is used
again.

  base   Debian 12 with Python 3.11, pandas, polars, matplotlib, plotly, readers of office documents and PDF, Node 24
         with npm, git, jq and the usual tools of scripts (the default)
  dev    base with the compilers of C, C++, Fortran, Go, Rust and Java, with PHP, cmake, ninja and cargo
  full   base with R, Java and JShell, TypeScript, LibreOffice, ffmpeg, ImageMagick, tesseract, pandoc, fonts of all
         scripts, and nearly 180 Python packages for numbers, charts, pictures, PDF, office documents, maps and model
         providers

dev and full are built in layers. The apt, pip and npm of this machine download the packages of a layer and check
their pinned hashes. Downloads and finished layers stay in the cache, so a failed build continues where it stopped. The build
of full downloads 1.4 GB, needs about 10 GB of disk while it runs, and takes 12 minutes or more.

With --output the archive is only written to a file, and no daemon is needed.`,
		Example: `  berth image build -t tools .
  berth image build -f docker/Dockerfile -t tools:2 --build-arg VERSION=2 --allow pypi.org --allow files.pythonhosted.org .
  berth image build base`,
		ValidArgs: sandboximage.Names(),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			if docker.isAsked(args) {
				if err := refuseFlags(cmd, own, "a build from a Dockerfile"); err != nil {
					return err
				}
				return docker.run(ctx, a, c, args)
			}
			if err := refuseFlags(cmd, dockers, "one of berth's own images"); err != nil {
				return err
			}
			if len(args) > 0 {
				o.Name = args[0]
			}
			if verbose {
				o.Log = a.Stderr
			}
			return buildImage(ctx, a, c, o)
		}),
	}
	cmd.Flags().BoolVar(&o.Refresh, "refresh", false, "use newer packages if available")
	cmd.Flags().StringVarP(&o.Out, "output", "o", "", "write the archive to this file and do not import it")
	cmd.Flags().StringVar(&o.CacheDir, "cache", "", "directory for downloads and archives (default "+
		sandboximage.DefaultCacheDir+")")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the output of the package tools")
	own = flagNames(cmd)
	docker.register(cmd)
	dockers = slices.DeleteFunc(flagNames(cmd), func(name string) bool { return slices.Contains(own, name) })
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}

// flagNames returns the names of a command's flags.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// refuseFlags refuses flags that would do nothing.
func refuseFlags(cmd *cobra.Command, names []string, what string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return proto.Errorf(proto.InvalidArgument, "", name, "--%s is not for %s; leave it out", name, what)
		}
	}
	return nil
}

func imageDockerfileCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "dockerfile NAME DIR", Short: "Write one of berth's own images as a Dockerfile", Args: app.ArgCount(2, 2),
		ValidArgs: sandboximage.Names(),
		Long: `Write one of berth's own images as a Dockerfile, with the files that it copies, into a new directory. Use it to
build the image elsewhere and to store it in a registry. The lists are those of "berth image build". Python packages and
npm modules are checked against the same hashes. Debian packages have the versions of the day.`,
		Example: `  berth image dockerfile full ./full
  docker build -t berth-full ./full`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := sandboximage.WriteDockerfile(args[0], args[1]); err != nil {
				return err
			}
			return a.PrintIDs(filepath.Join(args[1], "Dockerfile"))
		},
	}
}

// buildImage builds the archive and sends it to the daemon. It skips the sending if the daemon has the same image, as
// after a build without changes. With --output it prints a path and sends nothing.
func buildImage(ctx context.Context, a *app.App, c *client.Client, o sandboximage.Options) error {
	if o.Out == "" { // fail now rather than after minutes of work
		if _, err := c.Info(ctx); err != nil {
			return err
		}
	}
	bar := a.NewProgress()
	defer bar.End()
	o.Progress = func(s sandboximage.Step) {
		bar.At(strings.TrimPrefix(s.Layer+": "+s.Name, ": "), s.Item, s.Done, s.Total, s.Bytes)
	}
	built, err := sandboximage.Build(ctx, o)
	bar.End()
	if err != nil {
		return err
	}
	if !a.Quiet && !a.JSON {
		printLayers(a, built)
	}
	if o.Out != "" {
		return a.PrintResult(built, built.Path, nil)
	}
	// Digest and name must both match: the same image under another name is not what the user asked for.
	if img, ok := hasImage(ctx, a, c, o.Name, built.Digest); ok {
		return a.PrintResult(img, img.Name, nil)
	}
	return importArchive(ctx, a, c, o.Name, built.Path)
}

// printLayers prints the size of each layer on standard error. Standard output is for the image's name or path.
func printLayers(a *app.App, r sandboximage.Result) {
	w := tabwriter.NewWriter(a.Stderr, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "LAYER\tPACKED\tUNPACKED")
	var packed, unpacked int64
	for _, l := range r.Layers {
		packed, unpacked = packed+l.Size, unpacked+l.Unpacked
		fmt.Fprintf(w, "%s\t%s\t%s\n", l.Name, term.Size(l.Size), term.Size(l.Unpacked))
	}
	if len(r.Layers) > 1 {
		fmt.Fprintf(w, "all\t%s\t%s\n", term.Size(packed), term.Size(unpacked))
	}
	_ = w.Flush() // a printing error does not make the build wrong
}

// hasImage returns the image if the daemon already has it under this name. Without this check every build would send
// hundreds of megabytes.
func hasImage(ctx context.Context, a *app.App, c *client.Client, name, digest string) (proto.Image, bool) {
	list, err := c.Images(ctx)
	if err != nil {
		return proto.Image{}, false // the import reports the error
	}
	for _, img := range list {
		if img.Digest == digest && img.Name == name {
			return img, true
		}
	}
	return proto.Image{}, false
}

// imageImportCommand returns `berth image import`. The client reads and sends the archive, so the daemon need not be
// able to read the file.
func imageImportCommand(a *app.App) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "import [flags] ARCHIVE", Aliases: []string{"load"},
		Short: "Import an image from an OCI or Docker archive", Args: app.ArgCount(1, 1),
		Long: `Import an image from an OCI or Docker archive: a tar file, which may be compressed. "-" is standard input.`,
		Example: `  berth image import --name tools image.tar
  docker save debian:12 | berth image import -`,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			return importArchive(ctx, a, c, name, args[0])
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the image (default: the name in the archive)")
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}

// importArchive streams an archive to the daemon. It shows the progress of the upload and then the daemon's steps. It
// keeps nothing in memory, because an image may be larger than that.
func importArchive(ctx context.Context, a *app.App, c *client.Client, name, path string) error {
	// 0 means an unknown size, such as for a pipe. The archive is then sent in chunks.
	in, total := os.Stdin, int64(0)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		if in = f; fi.Mode().IsRegular() {
			total = fi.Size()
		}
	}
	bar := a.NewProgress()
	defer bar.End()
	// The step is called "sending" until the daemon reports a step.
	img, err := c.ImportImage(ctx, name, bar.Reader(in, "sending "+filepath.Base(path), total), total, bar.Image)
	bar.End()
	return a.PrintResult(img, img.Name, err)
}

// imagePullCommand returns `berth image pull`. The daemon pulls the image, so the daemon must reach the registry.
func imagePullCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pull REF", Short: "Pull an image from a registry", Args: app.ArgCount(1, 1),
		Example: "  berth image pull debian:12",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			bar := a.NewProgress()
			defer bar.End()
			img, err := c.PullImage(ctx, args[0], bar.Image)
			bar.End()
			return a.PrintResult(img, img.Name, err)
		}),
	}
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}

// imageNoun returns the commands that list and remove images. Tables show a short digest. --json shows the whole one,
// for pinning.
func imageNoun(a *app.App) app.Noun[proto.Image] {
	return app.Noun[proto.Image]{
		ListShort: "List images", List: (*client.Client).Images,
		Columns: term.Columns[proto.Image]{
			Head: []string{"NAME", "DIGEST", "PLATFORM", "SIZE", "CREATED"},
			Row: func(img proto.Image) []string {
				return []string{img.Name, shortDigest(img.Digest), img.Platform, term.Size(img.SizeBytes),
					term.Ago(img.CreatedAt)}
			},
		},
		Argument: "IMAGE", RemoveShort: "Remove images; containers keep what they use", Complete: a.CompleteImages(),
		Remove: (*client.Client).RemoveImage,
	}
}
