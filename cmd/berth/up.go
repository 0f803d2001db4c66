package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/daemon"
	"berth/session"
)

// upCommand is `berth up`.
func upCommand() *cobra.Command {
	o := newOptions()
	var file configFile
	u := &up{out: term.Output{Stdout: os.Stdout, Stderr: os.Stderr}}
	cmd := &cobra.Command{
		Use: "up", Short: "Start the daemon, give it an image, and say what to do next",
		Long: `Check this machine, start the daemon, and give it an image: base.tar, base.tar.gz or base.tar.zst
from beside the program or from /usr/share/berth, or else one that 'berth image build base' makes. If all that is done already,
only say so.

Where systemd runs and the unit berth.service is installed, that unit is started. Else, and with --background, the
daemon runs in the background, with the flags of 'berth serve' that are given here. It writes its log to daemon.log
in its data directory. 'berth down' stops it.`,
		Example: "  sudo berth up\n  sudo berth up --network-max allowlist",
		Args:    app.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := app.UntilSignal(cmd.Context())
			defer stop()
			u.in = readInputs(file.path(cmd.Flags()), o)
			u.explicit = cmd.Flags().Changed("config")
			return app.WithSignal(ctx, u.run(ctx))
		},
	}
	cmd.Flags().AddFlagSet(o.flags)
	file.addFlag(cmd.Flags())
	cmd.Flags().BoolVar(&u.background, "background", false, "do not use systemd")
	return cmd
}

// up is one run of `berth up`.
type up struct {
	out        term.Output
	in         inputs
	explicit   bool // the configuration file was named
	background bool

	cfg daemon.Config
}

// say shows a step on standard error.
func (u *up) say(format string, args ...any) {
	fmt.Fprintf(u.out.Stderr, "berth: %s\n", term.Printable(fmt.Sprintf(format, args...)))
}

func (u *up) run(ctx context.Context) error {
	_, cfg, err := load(u.in)
	if err != nil {
		return err
	}
	if err := absolute(&cfg); err != nil {
		return err
	}
	u.cfg = cfg
	if os.Geteuid() != 0 {
		return errors.New("up starts the daemon and needs root; run it with sudo")
	}
	p, err := readPublished(cfg.Dir)
	switch {
	case err == nil:
		u.say("the daemon runs already, with the process ID %d", p.PID)
	case !errors.Is(err, errNotRunning):
		return err
	default:
		if err := u.start(ctx); err != nil {
			return err
		}
	}
	c, url, err := u.client()
	if err != nil {
		return err
	}
	if err := u.provideImage(ctx, c, url); err != nil {
		return err
	}
	return u.sayNext(url)
}

// start checks the machine and starts the daemon.
func (u *up) start(ctx context.Context) error {
	u.say("checking this machine")
	bad := 0
	err := examineHost(ctx, app.DoctorOptions{Dir: u.cfg.Dir, BinDir: u.cfg.BinDir, Quick: true}, func(f app.Finding) {
		if f.Grade == app.GradeFail {
			u.say("%s: %s; %s", f.Name, f.Found, f.Fix)
			bad++
		}
	})
	if err != nil {
		return err
	}
	if bad > 0 {
		return app.WithHint(fmt.Errorf("this machine cannot run the daemon: %d to mend", bad),
			"`berth doctor` shows all")
	}
	if !u.background && hasUnit(ctx) {
		if len(u.in.given) > 0 || u.explicit {
			return app.WithHint(fmt.Errorf("the unit %s takes no flags", unitName), "put them into "+defaultConfig+
				", or start the daemon without systemd, with --background")
		}
		u.say("starting the unit %s", unitName)
		return startUnit(ctx, u.say)
	}
	return u.startInBackground(ctx)
}

// client returns a client of the daemon that runs now, and its URL.
func (u *up) client() (*client.Client, string, error) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(u.cfg.Dir, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	url := read(app.DaemonFiles.URL)
	if url == "" {
		return nil, "", errors.New("the daemon has no address yet; it is starting or ending, so try again in a moment")
	}
	c, err := client.New(client.Config{Host: url, Key: read(app.DaemonFiles.Key), Agent: "berth/" + version,
		CAToo: []byte(read(app.DaemonFiles.CA))})
	return c, url, err
}

// provideImage gives the daemon the image of containers that name none, if it lacks it.
func (u *up) provideImage(ctx context.Context, c *client.Client, url string) error {
	list, err := c.Images(ctx)
	if err != nil {
		return err
	}
	name := u.cfg.Session.Image
	for _, img := range list {
		if img.Name == name {
			return nil
		}
	}
	if name != session.DefaultImage {
		u.say("the daemon has no image %s yet; get it with `berth image pull` or `berth image import`", name)
		return nil
	}
	path, err := findArchive(u.cfg.BinDir)
	if err != nil {
		return err
	}
	if path == "" {
		return u.buildImage(ctx, url)
	}
	u.say("importing the image %s from %s", name, path)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	bar := u.out.NewProgress()
	defer bar.End()
	in := bar.Reader(f, "sending "+filepath.Base(path), info.Size())
	_, err = c.ImportImage(ctx, name, in, info.Size(), bar.Image)
	return err
}

// findArchive returns the archive of the base image that came with the program, or "".
func findArchive(bin string) (string, error) {
	for _, dir := range []string{bin, filepath.Dir(bin), "/usr/share/berth"} {
		for _, name := range []string{"base.tar", "base.tar.zst", "base.tar.gz"} {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
	}
	return "", nil
}

// buildImage runs `berth image build base`, which shows its own progress.
func (u *up) buildImage(ctx context.Context, url string) error {
	u.say("there is no base.tar beside the program, so the image is built, which takes some minutes")
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"image", "build", session.DefaultImage}, u.clientFlags(url)...)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Stdout, cmd.Stderr = u.out.Stderr, u.out.Stderr // the result of `berth up` is what to do next
	if err := cmd.Run(); err != nil {
		return app.WithHint(errors.New("the image base could not be built"),
			"put a base.tar beside the program, or mend what the lines above say, and run `berth up` again")
	}
	return nil
}

// clientFlags returns the flags that client commands need to find the daemon: none for one in the usual place.
func (u *up) clientFlags(url string) []string {
	if u.cfg.Dir == app.DefaultDir {
		return nil // they read its files
	}
	flags := []string{"--host", url, "--api-key-file", daemon.KeyFile(u.cfg.Dir)}
	if ca := filepath.Join(u.cfg.Dir, app.DaemonFiles.CA); strings.HasPrefix(url, "https:") {
		if _, err := os.Stat(ca); err == nil {
			flags = append(flags, "--ca", ca)
		}
	}
	return flags
}

// sayNext prints what a person does next, in lines to be pasted.
func (u *up) sayNext(url string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if found, err := exec.LookPath("berth"); err == nil && sameFile(found, exe) {
		exe = "berth"
	}
	flags := ""
	for _, f := range u.clientFlags(url) {
		flags += " " + f
	}
	_, err = fmt.Fprintf(u.out.Stdout, `berth serves at %[1]s, with its API key in %[2]s

try it            %[3]s run%[4]s -it bash
add Claude Code   claude mcp add berth -- %[3]s mcp%[4]s
settings          %[3]s config show%[5]s
stop it           %[3]s down%[5]s
`, url, daemon.KeyFile(u.cfg.Dir), exe, flags, u.dirFlag())
	return err
}

// dirFlag returns the flag for commands that look into the data directory, with a space in front.
func (u *up) dirFlag() string {
	if u.cfg.Dir == app.DefaultDir {
		return ""
	}
	return " --data " + u.cfg.Dir
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
