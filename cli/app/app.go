// Package app is what all client commands share: the flags that name a daemon, the client for it, names of containers
// and their completion, and how errors end the program.
//
// Packages cli, cli/admin and cli/data have the commands. Each command is a function of an App.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/cli/term"
	"berth/client"
	"berth/proto"

	"github.com/spf13/cobra"
)

// An App is one run of the program: its flags and what they lead to.
type App struct {
	term.Output
	Config  Config
	Dir     string // data directory of the daemon, if it is on this machine
	Host    string // "": the URL file in Dir, or Config.Host
	Key     string
	KeyFile string
	CA      string
	keyErr  error // why the default key file could not be read
}

// An action is what a command does once its flags are read. Ctx ends when the user interrupts it.
type action func(ctx context.Context, c *client.Client, args []string) error

// WithClient wires an action to a command.
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

// NewClient makes the client that the flags ask for.
// It connects to nothing yet, so it is cheap for commands that turn out not to need it.
func (a *App) NewClient() (*client.Client, error) {
	key, err := a.apiKey()
	if err != nil {
		return nil, err
	}
	// net/http would refuse such a header, without a word of where the key came from.
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, proto.Errorf(proto.InvalidArgument, "", "api-key",
			"the API key holds spaces or characters that no key has")
	}
	cfg := client.Config{Host: a.daemon(), Key: key, Agent: "berth/" + a.Config.Version}
	if a.CA == "" {
		cfg.CAToo, _ = os.ReadFile(filepath.Join(a.Dir, a.Config.Places.CA)) // most daemons have none
	} else if cfg.CA, err = os.ReadFile(a.CA); err != nil {
		return nil, fmt.Errorf("the CA file: %w", err)
	}
	return client.New(cfg)
}

// daemon is the URL to talk to: what was asked for, or what the daemon of this machine says of itself.
func (a *App) daemon() string {
	if a.Host != "" {
		return a.Host
	}
	// A daemon writes the file when it listens, so that one on another port needs no flag.
	if url, err := os.ReadFile(filepath.Join(a.Dir, a.Config.Places.URL)); err == nil {
		return strings.TrimSpace(string(url))
	}
	return a.Config.Host
}

// apiKey finds the key: flags first, then the environment, then the default file. That the last cannot be read is
// no error until the daemon asks for a key, since a daemon that does not run is the better one.
func (a *App) apiKey() (string, error) {
	switch {
	case a.Key != "":
		return a.Key, nil
	case a.KeyFile != "":
		return readKey(a.KeyFile)
	case os.Getenv("BERTH_API_KEY") != "":
		return os.Getenv("BERTH_API_KEY"), nil
	}
	key, err := readKey(filepath.Join(a.Dir, a.Config.Places.Key))
	a.keyErr = err
	return key, nil
}

// readKey reads the file that the daemon has made. Its name is shown in the error: it is the user's own machine.
func readKey(path string) (string, error) {
	data, err := os.ReadFile(path)
	var pe *os.PathError
	if errors.As(err, &pe) {
		return "", fmt.Errorf("the API key file %s cannot be read: %w", path, pe.Err)
	}
	return strings.TrimSpace(string(data)), err
}

// AddJSONFlag gives a command --json.
// Not on the root: a command that has no JSON to print should refuse the flag.
func (a *App) AddJSONFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.JSON, "json", false, "print JSON")
	return cmd
}

// AddQuietFlag gives a command --quiet.
func (a *App) AddQuietFlag(cmd *cobra.Command, what string) *cobra.Command {
	cmd.Flags().BoolVarP(&a.Quiet, "quiet", "q", false, what)
	return cmd
}

// NewGroup is a command that only holds others.
func NewGroup(cmd *cobra.Command, sub ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(sub...)
	return cmd
}

// ArgCount refuses more or fewer arguments, and shows how it is done. A negative most is no limit.
// The whole command line is shown with its arguments, since the count alone helps nobody.
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

// CleanupTimeout bounds the removal of what a command made, after the command ended or was interrupted. Deleting
// takes moments; a busy daemon may need longer, and no user waits for ever after ^C.
const CleanupTimeout = time.Minute
