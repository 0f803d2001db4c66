// Package app has what all client commands share: the flags that name a daemon, the client, names of containers and
// their completion, and the handling of errors at the program's end.
//
// Packages cli, cli/admin and cli/data have the commands. Each command is a function of an App.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"berth/cli/app/profile"
	"berth/cli/term"
	"berth/client"
	"berth/proto"

	"github.com/spf13/cobra"
)

// An App is one run of the program, with its flags.
type App struct {
	term.Output
	Config  Config
	Dir     string // data directory of the daemon, if it is on this machine
	Host    string // "": the URL in the URL file in Dir, or else Config.Host
	Key     string
	KeyFile string
	CA      string
	Profile string // name of the profile to use; "": the current one
	keyErr  error  // why the default key file could not be read
	// tellAway has told
	toldAway atomic.Bool
}

// An action does the work of a command after its flags are parsed. ctx ends when the user interrupts the command.
type action func(ctx context.Context, c *client.Client, args []string) error

// WithClient returns a command's function that makes a client and runs an action.
func (a *App) WithClient(fn action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := UntilSignal(cmd.Context())
		defer stop()
		c, err := a.NewClient()
		if err != nil {
			return err
		}
		return WithSignal(ctx, fn(ctx, c, args))
	}
}

// WithContainer is WithClient for a command whose first argument is a container. fn gets the container's ID, and all
// arguments.
func (a *App) WithContainer(fn func(ctx context.Context, c *client.Client, id string, args []string) error) func(
	*cobra.Command, []string) error {
	return a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := a.FindContainer(ctx, c, args[0])
		if err != nil {
			return err
		}
		return fn(ctx, c, id, args)
	})
}

// NewClient returns a client according to the flags. It does not connect, so it is cheap if no request follows.
func (a *App) NewClient() (*client.Client, error) {
	p, err := a.profile()
	if err != nil {
		return nil, err
	}
	key, err := a.apiKey(p)
	if err != nil {
		return nil, err
	}
	// net/http would refuse such a header without naming the key as the cause.
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, proto.Errorf(proto.InvalidArgument, "", "api-key",
			"the API key holds spaces or characters that no key has")
	}
	cfg := client.Config{Host: a.daemon(p), Key: key, Agent: "berth/" + a.Config.Version, Wait: requestWait,
		Waiting: a.tellAway, TraceParent: traceVariable("TRACEPARENT"), TraceState: traceVariable("TRACESTATE")}
	switch {
	case a.CA != "":
		if cfg.CA, err = os.ReadFile(a.CA); err != nil {
			return nil, fmt.Errorf("the CA file: %w", err)
		}
	case p.CA != "":
		cfg.CA = []byte(p.CA)
	case p.URL == "":
		cfg.CAToo, _ = os.ReadFile(filepath.Join(a.Dir, a.Config.Places.CA)) // most daemons have no such file
	}
	return client.New(cfg)
}

// profile returns the profile that the flags, or else the environment, choose. It is empty if they name a daemon
// instead, or if there is none: the key of one daemon is never sent to another.
func (a *App) profile() (profile.Profile, error) {
	switch {
	case a.Host != "" && a.Profile != "":
		return profile.Profile{}, proto.Errorf(proto.InvalidArgument, "", "profile", "--host and --profile each name "+
			"a daemon; leave one out")
	case a.Host != "" || a.Profile == "" && os.Getenv("BERTH_HOST") != "":
		return profile.Profile{}, nil
	}
	all, err := profile.Open()
	if err != nil {
		return profile.Profile{}, err
	}
	p, _, err := all.Find(cmp.Or(a.Profile, os.Getenv("BERTH_PROFILE")))
	return p, err
}

// traceVariable returns a variable with a trace context. One that no header can hold is left out, as W3C demands for
// invalid ones.
func traceVariable(name string) string {
	text := os.Getenv(name)
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return text
}

// daemon returns the daemon's URL: from the flags, a profile, or the URL file of a daemon on this machine.
func (a *App) daemon(p profile.Profile) string {
	switch {
	case a.Host != "":
		return a.Host
	case p.URL != "":
		return p.URL
	case os.Getenv("BERTH_HOST") != "" && a.Profile == "":
		return os.Getenv("BERTH_HOST")
	}
	// A daemon writes the file when it listens, so a daemon on another port needs no flag.
	if url, err := os.ReadFile(filepath.Join(a.Dir, a.Config.Places.URL)); err == nil {
		return strings.TrimSpace(string(url))
	}
	return a.Config.Host
}

// apiKey returns the key from the flags, the environment, a profile or the default file, in this order. An unreadable
// default file is an error only when the daemon asks for a key: if no daemon runs, that error is more useful.
func (a *App) apiKey(p profile.Profile) (string, error) {
	switch {
	case a.Key != "":
		return a.Key, nil
	case a.KeyFile != "":
		return readKey(a.KeyFile)
	case os.Getenv("BERTH_API_KEY") != "" && a.Profile == "": // a profile that is named has its own
		return os.Getenv("BERTH_API_KEY"), nil
	case p.Key != "":
		return p.Key, nil
	}
	key, err := readKey(filepath.Join(a.Dir, a.Config.Places.Key))
	a.keyErr = err
	return key, nil
}

// readKey reads a key file. Its error shows the file's name, because the file is on the user's own machine.
func readKey(path string) (string, error) {
	data, err := os.ReadFile(path)
	var pe *os.PathError
	if errors.As(err, &pe) {
		return "", fmt.Errorf("the API key file %s cannot be read: %w", path, pe.Err)
	}
	return strings.TrimSpace(string(data)), err
}

// AddQuietFlag adds --quiet to a command.
func (a *App) AddQuietFlag(cmd *cobra.Command, what string) *cobra.Command {
	cmd.Flags().BoolVarP(&a.Quiet, "quiet", "q", false, what)
	return cmd
}

// NewGroup makes a command into a group of other commands.
func NewGroup(cmd *cobra.Command, sub ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(sub...)
	return cmd
}

// ArgCount refuses fewer than least or more than most arguments. A negative most means no limit. The error shows the
// whole usage line, because a count alone does not help.
func ArgCount(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			what := "too few arguments"
			if len(args) > least {
				what = "too many arguments"
			}
			return &UsageError{cmd, fmt.Errorf("%s; use it as: %s", what, cmd.UseLine())}
		}
		return nil
	}
}

// CleanupTimeout bounds the cleanup after a command has ended or was interrupted. A deletion takes moments. A busy
// daemon may need longer, but a user does not wait forever after ^C.
const CleanupTimeout = time.Minute
