// Package cli is the client half of the berth command: every subcommand that talks to a daemon.
//
// What a command is asked for goes to standard output and nothing else does, so that it can be piped; notes, progress
// and errors go to standard error. Names and texts that come from containers are shown without control characters,
// but for the output of commands, which is passed on byte by byte. The exit status is the command's own where one
// ran, and 125 for failures of berth's.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth/cli/term"
	"berth/client"
	"berth/proto"

	"github.com/spf13/cobra"
)

// GroupOther is the ID of the help's group of commands that are about the daemon or the program itself.
const GroupOther = "other"

// A Config is what the program knows and this package does not.
type Config struct {
	Version string
	Host    string // of the daemon, unless BERTH_HOST, --host or one on this machine say otherwise
	DataDir string // of the daemon on this machine, if there is one
	Places  Places // in it
	Doctor  Doctor // nil: there is no doctor command
	Bench   Bench  // nil: the bench command starts berth-bench
	Rotate  Rotate // nil: keys for secrets are changed by the daemon alone
}

// Places are files in a data directory, by name, that a daemon has for clients on its own machine. None need be there.
type Places struct {
	URL string // where it listens
	Key string // an API key
	CA  string // what to trust, where it made its own certificate
}

// Where a daemon on this machine is found, unless it was started with other flags.
const (
	DefaultListen = "127.0.0.1:7117"
	DefaultHost   = "http://" + DefaultListen
	DefaultDir    = "/var/lib/berth"
)

// DaemonFiles are the Places of every daemon.
var DaemonFiles = Places{URL: "url", Key: "api-key", CA: "tls/ca.pem"}

// An app is one run of the program: its flags and what they lead to.
type app struct {
	term.Output
	cfg     Config
	dir     string // data directory of the daemon, if it is on this machine
	host    string // "" is what dir says, or cfg.Host
	key     string
	keyFile string
	ca      string
	keyErr  error // why the default key file could not be read
}

// New makes the root command with all client commands. The caller adds what else there is and calls Run.
func New(cfg Config) *cobra.Command {
	a := &app{cfg: cfg, dir: cfg.DataDir, Output: term.Output{Stdout: os.Stdout, Stderr: os.Stderr}}
	root := &cobra.Command{
		Use:   "berth",
		Short: "Stateful Linux containers for AI agents",
		Long: `berth gives AI agents, and the people who run them, stateful Linux containers:
get one, run bash in it, come back later with the same ID.

A container is called by its ID, by the name that --name gave it, or by a part of its ID that no other one has: at least
8 characters of its beginning, or 4 of its end.

'berth serve' is the daemon; every other command talks to one.`,
		Example: `  berth run -- python3 -c 'print(6*7)'
  berth run -it bash
  berth cp data.csv CONTAINER:/workspace/
  berth exec CONTAINER ls -l /workspace`,
		Version: cfg.Version,
		// Cobra would print pages of help for every error, which push the error off the screen.
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.StringVar(&a.host, "host", os.Getenv("BERTH_HOST"), "URL of the daemon (BERTH_HOST); without it, that of the "+
		"daemon on this machine, or "+cfg.Host)
	f.StringVar(&a.key, "api-key", "",
		"API key; others on this machine can see it there, so prefer BERTH_API_KEY or a file")
	f.StringVar(&a.keyFile, "api-key-file", "", "file with the API key (default "+filepath.Join(cfg.DataDir,
		cfg.Places.Key)+")")
	f.StringVar(&a.ca, "ca", os.Getenv("BERTH_CA"),
		"PEM file of certificates to trust in place of the system's (BERTH_CA)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd, err} })
	root.AddCommand(a.commands()...)
	root.SetHelpCommandGroupID(GroupOther)
	root.SetCompletionCommandGroupID(GroupOther)
	strict(root)
	root.AddGroup(&cobra.Group{ID: "containers", Title: "Containers:"}, &cobra.Group{ID: "execs",
		Title: "Commands in containers:"},
		&cobra.Group{ID: "data", Title: "Files and images:"}, &cobra.Group{ID: GroupOther,
			Title: "The daemon and this program:"})
	// Errors are reported where the flags are known; see Run.
	root.SetContext(context.WithValue(context.Background(), appKey{}, a))
	return root
}

// strict makes errors of what cobra's own commands shrug off with status 0: help on what is no command, and
// completion for what is no shell. It is for when there are other commands, without which cobra adds none of its own.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			show := cmd.Run
			cmd.Run, cmd.RunE = nil, func(cmd *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err != nil {
					return err
				}
				if len(rest) > 0 && about.HasSubCommands() {
					return fmt.Errorf("unknown command %q for %q", rest[0], about.CommandPath())
				}
				show(cmd, args)
				return nil
			}
		case "completion":
			group(cmd)
		}
	}
}

// appKey is where the root command's context has its app, for Run to find.
type appKey struct{}

// commands are all of them, by group.
func (a *app) commands() []*cobra.Command {
	groups := map[string][]*cobra.Command{
		"containers": {a.runCommand(), a.createCommand(), a.listCommand(), a.inspectCommand(), a.startCommand(),
			a.stopCommand(), a.pauseCommand(), a.resumeCommand(),
			a.extendCommand(), a.removeCommand(), a.copyCommand(), a.workspacesCommand()},
		"execs": {a.execCommand(), a.codeCommand(), a.contextsCommand(), a.psCommand(), a.logsCommand(),
			a.waitCommand(), a.killCommand(), a.jobsCommand(), a.toolCommand(), a.storedCommand(), a.callsCommand(),
			a.mcpCommand()},
		"data": {a.filesCommand(), a.skillsCommand(), a.imageCommand()},
		GroupOther: {a.keyCommand(), a.auditCommand(), a.vaultCommand(), a.gcCommand(), a.versionCommand(),
			a.attackCommand(), a.attackProbeCommand(), a.benchCommand()},
	}
	if a.cfg.Doctor != nil {
		groups[GroupOther] = append(groups[GroupOther], a.doctorCommand())
	}
	var all []*cobra.Command
	for id, group := range groups {
		for _, cmd := range group {
			cmd.GroupID = id
		}
		all = append(all, group...)
	}
	return all
}

// Run runs the program and returns its exit status.
func Run(root *cobra.Command) int {
	ctx := root.Context()
	a, ok := ctx.Value(appKey{}).(*app)
	if !ok {
		panic("cli: Run needs the command that New made")
	}
	return a.report(root.ExecuteContext(ctx))
}

// An action is what a command does once its flags are read. Ctx ends when the user interrupts it.
type action func(ctx context.Context, c *client.Client, args []string) error

// do wires an action to a command.
func (a *app) do(fn action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := untilSignal(cmd.Context())
		defer stop()
		c, err := a.client()
		if err != nil {
			return err
		}
		return signaled(ctx, fn(ctx, c, args))
	}
}

// client makes the client that the flags ask for.
// It connects to nothing yet, so it is cheap for commands that turn out not to need it.
func (a *app) client() (*client.Client, error) {
	key, err := a.apiKey()
	if err != nil {
		return nil, err
	}
	// net/http would refuse such a header, without a word of where the key came from.
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, proto.Errorf(proto.InvalidArgument, "", "api-key",
			"the API key holds spaces or characters that no key has")
	}
	cfg := client.Config{Host: a.daemon(), Key: key, Agent: "berth/" + a.cfg.Version}
	if a.ca == "" {
		cfg.CAToo, _ = os.ReadFile(filepath.Join(a.dir, a.cfg.Places.CA)) // most daemons have none
	} else if cfg.CA, err = os.ReadFile(a.ca); err != nil {
		return nil, fmt.Errorf("the CA file: %w", err)
	}
	return client.New(cfg)
}

// daemon is the URL to talk to: what was asked for, or what the daemon of this machine says of itself.
func (a *app) daemon() string {
	if a.host != "" {
		return a.host
	}
	// A daemon writes the file when it listens, so that one on another port needs no flag.
	if url, err := os.ReadFile(filepath.Join(a.dir, a.cfg.Places.URL)); err == nil {
		return strings.TrimSpace(string(url))
	}
	return a.cfg.Host
}

// apiKey finds the key: flags first, then the environment, then the default file. That the last cannot be read is
// no error until the daemon asks for a key, since a daemon that does not run is the better one.
func (a *app) apiKey() (string, error) {
	switch {
	case a.key != "":
		return a.key, nil
	case a.keyFile != "":
		return readKey(a.keyFile)
	case os.Getenv("BERTH_API_KEY") != "":
		return os.Getenv("BERTH_API_KEY"), nil
	}
	key, err := readKey(filepath.Join(a.dir, a.cfg.Places.Key))
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

// jsonFlag gives a command --json.
// Not on the root: a command that has no JSON to print should refuse the flag.
func (a *app) jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.JSON, "json", false, "print JSON")
	return cmd
}

// quietFlag gives a command --quiet.
func (a *app) quietFlag(cmd *cobra.Command, what string) *cobra.Command {
	cmd.Flags().BoolVarP(&a.Quiet, "quiet", "q", false, what)
	return cmd
}

// group is a command that only holds others.
func group(cmd *cobra.Command, sub ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(sub...)
	return cmd
}

// takes refuses more or fewer arguments, and shows how it is done. A negative most is no limit.
// The whole command line is shown with its arguments, since the count alone helps nobody.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			what := "too few arguments"
			if len(args) > least {
				what = "too many arguments"
			}
			return &usageError{cmd, fmt.Errorf("%s; use it as: %s", what, cmd.UseLine())}
		}
		return nil
	}
}
