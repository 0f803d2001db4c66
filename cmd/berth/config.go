package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/daemon/settings"
)

// configCommand is `berth config`.
func configCommand() *cobra.Command {
	return app.NewGroup(&cobra.Command{
		Use: "config", Short: "The configuration of the daemon: check it, show it, print an example",
		Long: `The configuration of the daemon: check it, show it, print an example.

The file is TOML. Its keys are the flags of 'berth serve', without the dashes in front. Texts and durations stand in
quotes, lists in brackets, sizes are numbers of bytes. An environment variable, as BERTH_WARM_MAX, wins over the file,
and a flag over both.`,
		Example: "  berth config example >/etc/berth/berth.toml\n  berth config check\n  berth config show",
	}, configCheckCommand(), configShowCommand(), configExampleCommand())
}

func configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check [FILE]", Short: "Report every fault of a configuration file",
		Long: `Report every fault of a configuration file, by default ` + defaultConfig + `. Neither the environment nor
a running daemon matters. The exit status is 1 if there is a fault.`,
		Args: app.ArgCount(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := defaultConfig
			if len(args) > 0 {
				file = args[0]
			}
			o, _, err := load(inputs{file: file})
			if err != nil {
				fmt.Fprintln(os.Stderr, term.PrintableLines(err.Error()))
				return app.ExitError{Status: app.StatusUnhealthy}
			}
			_, err = fmt.Printf("%s: %d settings, no fault\n", file, len(o.from))
			return err
		},
	}
}

func configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "example", Short: "Print a configuration file with every key, its help and its default",
		Args: app.ArgCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Print(configExample())
			return err
		},
	}
}

// exampleHead opens the example.
const exampleHead = `Configuration of the berth daemon.

Each key is a flag of "berth serve". What begins with # is a comment; the values in comments are the defaults. A key
that stays a comment keeps its default in later versions, too. A variable such as BERTH_WARM_MAX wins over this file,
and a flag over both.

After a change: "berth config check", then "systemctl reload berth" (or SIGHUP). "berth config show" has what is in
effect, and what needs a restart. Relative paths begin at the working directory of the daemon, so write absolute
ones.`

// configExample returns the example, which packages install.
func configExample() string {
	return settings.Example(newOptions().flags, settingGroups, exampleHead, func(key string) string {
		if reloadable(key) {
			return "A reload applies it."
		}
		return ""
	})
}

// settingGroups are the settings in the order of the example.
var settingGroups = []settings.Group{
	{Title: "Address and data", Keys: []string{"listen", "domain", "origin", "data", "bin", "containerd"}},
	{Title: "TLS", Keys: []string{"tls-cert", "tls-key", "tls-self-signed", "acme", "acme-agree", "acme-email",
		"acme-dns", "acme-http", "acme-config"}},
	{Title: "Access tokens", Keys: []string{"oauth-issuer", "oauth-resource", "oauth-claim", "oauth-scope"}},
	{Title: "Containers", Keys: []string{"image", "runtime-class", "runtime-classes", "allow-sudo", "max-containers",
		"max-execs", "exec-timeout", "warm-min", "warm-max"}},
	{Title: "Limits of one container", Keys: []string{"cpus", "memory-bytes", "pids", "open-files", "disk-bytes"}},
	{Title: "Life of containers", Keys: []string{"idle-timeout", "pause-idle-after", "stop-idle-after",
		"pause-retention", "max-lifetime", "unused-lifetime", "sweep-every", "stop-on-exit"}},
	{Title: "Networks and ports", Keys: []string{"network-max", "network-ask", "ports-max", "resolver",
		"egress-allow-private", "egress-ca", "tools-callback", "webhook-allow-private", "registry-mirror"}},
	{Title: "Disk, files and skills", Keys: []string{"pool-bytes", "owner-disk-bytes", "output-memory-bytes",
		"output-disk-bytes", "file-quota-bytes", "max-file-bytes", "strict-downloads", "skills", "skill-max-bytes",
		"skill-quota-bytes", "max-skills", "accept-loss"}},
	{Title: "Models", Keys: []string{"upstream", "upstream-keys", "upstream-timeout", "upstream-idle-timeout",
		"max-rounds", "max-turn", "provider-keys"}},
	{Title: "Log and metrics", Keys: []string{"debug", "log-json", "open-metrics", "pprof"}},
}

// A shownSetting is a setting as `berth config show` prints it.
type shownSetting struct {
	Key   string          `json:"key"`
	Value string          `json:"value"` // as TOML has it
	From  settings.Source `json:"from"`
	// Next is the value that the file has now, and Needs what brings it into effect; empty without a running daemon, or
	// if the daemon has this value.
	Next  string `json:"next,omitempty"`
	Needs string `json:"needs,omitempty"` // "reload" or "restart"
}

func configShowCommand() *cobra.Command {
	out := term.Output{Stdout: os.Stdout, Stderr: os.Stderr}
	var file configFile
	var dir string
	cmd := &cobra.Command{
		Use: "show", Short: "Show the effective settings, and where each comes from",
		Long: `Show the settings of the daemon that runs over the data directory, and where each comes from. If the file
has another value by now, the last column names it, and whether it needs a reload or a restart.

Without a running daemon, show what 'berth serve' would use in this environment.`,
		Args: app.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showConfig(&out, readInputs(file.path(cmd.Flags()), newOptions()), dir)
		},
	}
	file.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&dir, "data", "", "data directory of the daemon (default: that of the configuration)")
	cmd.Flags().BoolVar(&out.JSON, "json", false, "print JSON")
	return cmd
}

// showConfig prints the settings of the daemon over dir, or those that in would give a daemon.
func showConfig(out *term.Output, in inputs, dir string) error {
	o, cfg, err := load(in)
	if dir == "" {
		dir = cfg.Dir
	}
	runs, rerr := readPublished(dir)
	var list []shownSetting
	switch {
	case errors.Is(rerr, errNotRunning):
		list = showOptions(o)
	case rerr != nil:
		return rerr
	default:
		next, _, nerr := load(runs.inputs())
		list, err = runs.show(next), nerr
		if nerr != nil {
			list = runs.show(nil)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, term.PrintableLines(err.Error()))
		fmt.Fprintln(os.Stderr, "berth: the configuration has faults; no daemon would take it")
	}
	if perr := term.PrintList(out, list, shownColumns); perr != nil || err == nil {
		return perr
	}
	return app.ExitError{Status: app.StatusUnhealthy}
}

var shownColumns = term.Columns[shownSetting]{
	Head: []string{"KEY", "VALUE", "FROM", "IN THE FILE NOW"},
	Row: func(s shownSetting) []string {
		next := s.Next
		if s.Needs != "" {
			next += " (needs a " + s.Needs + ")"
		}
		return []string{s.Key, s.Value, s.From.String(), next}
	},
}

// showOptions returns all settings in the order of the example.
func showOptions(o *options) (list []shownSetting) {
	for _, g := range settingGroups {
		for _, key := range g.Keys {
			list = append(list, shownSetting{Key: key, Value: o.shown(key), From: o.source(key)})
		}
	}
	return list
}

// literal returns the value of a setting as TOML has it.
func (o *options) literal(key string) string {
	f := o.flags.Lookup(key)
	return settings.LiteralOf(f)
}

// shown returns the value of a setting as people want to see it: the true default where nothing else was given.
func (o *options) shown(key string) string {
	if o.source(key).Kind == settings.Default {
		return settings.DefaultOf(o.flags.Lookup(key))
	}
	return o.literal(key)
}

// source returns where the value of a setting comes from.
func (o *options) source(key string) settings.Source {
	if s, ok := o.from[key]; ok {
		return s
	}
	return settings.Source{Kind: settings.Default}
}

// differing returns the settings whose values differ, sorted.
func (o *options) differing(other *options) (keys []string) {
	for _, key := range settings.Keys(o.flags) {
		if o.literal(key) != other.literal(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
