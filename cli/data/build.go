package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/flags"
	"berth/cli/pack"
	"berth/cli/term"
	"berth/client"
	"berth/proto"

	sandboximage "berth/sandbox-image"
)

// A dockerBuild has the flags of a build from a Dockerfile.
type dockerBuild struct {
	file         string
	tags         []string
	args, labels []string
	secrets      []string
	class        string
	network      flags.Network
	o            proto.BuildOptions
}

// register adds the flags.
func (b *dockerBuild) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&b.file, "file", "f", "", "Dockerfile (default DIRECTORY/Dockerfile)")
	fs.StringArrayVarP(&b.tags, "tag", "t", nil, "name of the image (default: the name of the directory; may be "+
		"repeated)")
	fs.StringVar(&b.o.Platform, "platform", "", "platform of the image; a daemon builds for that of its host alone")
	fs.StringVar(&b.o.Target, "target", "", "stage that becomes the image (default: the last)")
	fs.StringArrayVar(&b.args, "build-arg", nil, "NAME=value for an ARG; NAME takes the local variable (may be "+
		"repeated)")
	fs.StringArrayVar(&b.secrets, "secret", nil, "id=NAME[,src=FILE|,env=VAR]: a secret for RUN --mount=type=secret "+
		"(may be repeated)")
	fs.StringArrayVar(&b.labels, "label", nil, "key=value: a label of the image (may be repeated)")
	fs.BoolVar(&b.o.NoCache, "no-cache", false, "run every step")
	fs.BoolVar(&b.o.Pull, "pull", false, "ask registries also for base images that the daemon has")
	fs.StringVar(&b.class, "runtime-class", "", "class of the sandboxes of steps (default: the daemon's)")
	fs.Float64Var(&b.o.Limits.CPUs, "cpus", 0, "CPUs of a step (default: the daemon's limit)")
	fs.Int64Var(&b.o.Limits.MemoryBytes, "memory-bytes", 0, "memory of a step (default: the daemon's limit)")
	fs.Int64Var(&b.o.Limits.DiskBytes, "disk-bytes", 0, "most bytes that the build writes (default: the daemon's "+
		"limit)")
	fs.Int64Var(&b.o.TimeoutSeconds, "timeout-seconds", 0, "end the build after this time (default: an hour)")
	b.network.Register(cmd)
}

// isAsked reports whether the arguments mean a Dockerfile and not one of berth's own images.
func (b *dockerBuild) isAsked(args []string) bool {
	if b.file != "" || len(b.tags) > 0 {
		return true
	}
	return len(args) > 0 && !slices.Contains(sandboximage.Names(), args[0])
}

// run builds and prints the name of the image.
func (b *dockerBuild) run(ctx context.Context, a *app.App, c *client.Client, args []string) error {
	dir := "."
	if len(args) > 0 {
		dir = args[0]
	}
	o := b.o
	o.Network, o.Class = b.network.Request(), proto.RuntimeClass(b.class)
	if len(b.tags) > 0 {
		o.Name, o.MoreNames = b.tags[0], b.tags[1:]
	}
	var err error
	if o.Args, err = flags.Env(b.args); err != nil {
		return err
	}
	if o.Labels, err = flags.Labels(b.labels); err != nil {
		return err
	}
	if o.Secrets, err = readSecrets(b.secrets); err != nil {
		return err
	}
	show := &buildDisplay{a: a, names: map[int]string{}}
	var img proto.Image
	if dir == "-" {
		o.Dockerfile = b.file
		if o.Name == "" {
			return proto.Errorf(proto.InvalidArgument, "", "tag", "give the image a name with --tag")
		}
		img, err = c.BuildImage(ctx, o, os.Stdin, show.event)
		return a.PrintResult(img, img.Name, err)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return proto.Errorf(proto.InvalidArgument, "", dir, "there is no image definition called %q, and no such "+
			"directory; there is %s", dir, strings.Join(sandboximage.Names(), ", "))
	}
	extra := map[string][]byte{}
	if o.Name == "" {
		if o.Name, err = nameFor(dir); err != nil {
			return err
		}
	}
	if o.Dockerfile, err = b.dockerfileIn(dir, extra); err != nil {
		return err
	}
	ignored, err := ignoredIn(dir, o.Dockerfile)
	if err != nil {
		return err
	}
	note := func(name string, why pack.Reason) {
		fmt.Fprintf(a.Stderr, "not sent: %s: %s\n", term.Printable(name), why)
	}
	err = c.Redo(ctx, func() error {
		return pack.StreamContext(dir, ignored, extra, note, func(r io.Reader) (err error) {
			show.names = map[int]string{} // steps that ended are in the cache and have new numbers
			img, err = c.BuildImage(ctx, o, r, show.event)
			return err
		})
	})
	return a.PrintResult(img, img.Name, err)
}

// notInName are characters that the name of an image cannot have.
var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// nameFor returns the name that the image of a directory has by default.
func nameFor(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(filepath.Base(abs)), "-"), "-")
	if name == "" || slices.Contains(sandboximage.Names(), name) {
		return "", proto.Errorf(proto.InvalidArgument, "", "tag", "give the image a name with --tag")
	}
	return name, nil
}

// outsideName is the name that a Dockerfile from elsewhere has in the context.
const outsideName = ".berth-dockerfile"

// dockerfileIn returns the path of the Dockerfile in the context. A Dockerfile that is elsewhere is added to extra.
func (b *dockerBuild) dockerfileIn(dir string, extra map[string][]byte) (string, error) {
	if b.file == "" {
		return "Dockerfile", nil
	}
	if b.file != "-" {
		absDir, err1 := filepath.Abs(dir)
		absFile, err2 := filepath.Abs(b.file)
		if err := errors.Join(err1, err2); err != nil {
			return "", err
		}
		if rel, err := filepath.Rel(absDir, absFile); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel), nil
		}
	}
	text, err := readDockerfile(b.file)
	extra[outsideName] = text
	return outsideName, err
}

// maxDockerfile bounds a Dockerfile from elsewhere, in bytes.
const maxDockerfile = 4 << 20

func readDockerfile(name string) ([]byte, error) {
	text, err := app.ReadInput(name, maxDockerfile)
	if err == nil && len(text) > maxDockerfile {
		err = proto.Errorf(proto.TooLarge, "", name, "the Dockerfile has more than %d MiB", maxDockerfile>>20)
	}
	return text, err
}

// ignoredIn returns what the .dockerignore of a directory leaves out. The builder reads the same file again, and needs
// it and the Dockerfile.
func ignoredIn(dir, dockerfile string) (func(name string) (skip, prune bool), error) {
	text, err := os.ReadFile(filepath.Join(dir, dockerfile+".dockerignore"))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(dir, ".dockerignore"))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, proto.Errorf(proto.InvalidArgument, "", ".dockerignore", "the .dockerignore has a bad pattern: %v",
			err)
	}
	needed := []string{dockerfile, dockerfile + ".dockerignore", ".dockerignore"}
	return func(name string) (skip, prune bool) {
		if slices.Contains(needed, name) {
			return false, false
		}
		matched, err := m.MatchesOrParentMatches(filepath.FromSlash(name))
		isAbove := slices.ContainsFunc(needed, func(n string) bool { return strings.HasPrefix(n, name+"/") })
		return err == nil && matched, !m.Exclusions() && !isAbove
	}, nil
}

// A buildDisplay prints the events of a build on standard error, line by line.
type buildDisplay struct {
	a     *app.App
	names map[int]string // of steps
}

// event prints one event. The end of a step that failed is printed also with --quiet.
func (d *buildDisplay) event(ev proto.BuildEvent) {
	if e := ev.Error; e != nil && e.Step != "" {
		fmt.Fprintf(d.a.Stderr, "failed: %s\n", term.Printable(strings.Join(strings.Fields(e.Step), " ")))
		for line := range strings.Lines(e.Log) {
			fmt.Fprintf(d.a.Stderr, "  %s\n", term.Printable(strings.TrimRight(line, "\r\n")))
		}
	}
	if d.a.Quiet {
		return
	}
	out := d.a.Stderr
	switch {
	case ev.Step != nil:
		d.step(ev.Step)
	case ev.Log != nil:
		for line := range strings.Lines(ev.Log.Data) {
			fmt.Fprintf(out, "#%d   %s\n", ev.Log.Step, term.Printable(strings.TrimRight(line, "\r\n")))
		}
	case ev.Warning != "":
		fmt.Fprintf(out, "warning: %s\n", term.Printable(ev.Warning))
	}
}

// step prints a step when it begins and when it ends.
func (d *buildDisplay) step(s *proto.BuildStepState) {
	said := d.names[s.Number]
	// BuildKit looks at some steps twice, such as those of FROM, and tells their state anew.
	again := said == s.State || said == "done" || said == "cached"
	if s.State != "failed" && (again || strings.HasPrefix(s.Name, "[internal]")) || said == "failed" {
		return
	}
	d.names[s.Number] = s.State
	name := term.Short(term.Printable(strings.Join(strings.Fields(s.Name), " ")), 100)
	switch s.State {
	case "running":
		fmt.Fprintf(d.a.Stderr, "#%d %s\n", s.Number, name)
	case "cached":
		fmt.Fprintf(d.a.Stderr, "#%d %s: cached\n", s.Number, name)
	case "done":
		fmt.Fprintf(d.a.Stderr, "#%d done in %.1f s\n", s.Number, s.Seconds)
	case "failed":
		fmt.Fprintf(d.a.Stderr, "#%d failed after %.1f s\n", s.Number, s.Seconds)
	}
}

// imageBuildsCommand returns `berth image builds`.
func imageBuildsCommand(a *app.App) *cobra.Command {
	return a.AddListFlags(&cobra.Command{
		Use: "builds", Short: "List builds that wait or run, and the size of the build cache", Args: app.ArgCount(0, 0),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Builds(ctx)
			if err != nil {
				return err
			}
			if !a.JSON {
				fmt.Fprintf(a.Stderr, "cache: %s in %d parts\n", term.Size(list.Cache.Bytes), list.Cache.Entries)
			}
			return term.PrintList(&a.Output, list.Builds, term.Columns[proto.Build]{
				Head: []string{"ID", "IMAGE", "STATE", "STARTED"},
				Row:  func(b proto.Build) []string { return []string{b.ID, b.Name, b.State, term.Ago(b.StartedAt)} }})
		}),
	})
}

// imageCancelCommand returns `berth image cancel`.
func imageCancelCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "cancel BUILD", Short: "Cancel a build", Args: app.ArgCount(1, 1),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			return c.CancelBuild(ctx, args[0])
		}),
	}
}
