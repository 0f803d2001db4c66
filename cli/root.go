// Package cli has the client commands of berth: every subcommand that talks to a daemon.
//
// A command prints its result, and nothing else, on standard output, so that it can be piped. Notes, progress and
// errors go to standard error. Names and texts from containers are printed without control characters. Output of
// commands is passed on unchanged. The exit status is that of the command if one ran, and 125 if berth itself failed.
package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/admin"
	"berth/cli/app"
	"berth/cli/code"
	"berth/cli/data"
	"berth/cli/term"
	"berth/cli/tools"
	"berth/cli/watch"
)

// GroupOther is the ID of the help group for commands about the daemon or the program itself.
const GroupOther = "other"

// New returns the root command with all client commands. The caller may add commands and then calls Run.
func New(cfg app.Config) *cobra.Command {
	a := &app.App{Config: cfg, Dir: cfg.DataDir, Output: term.Output{Stdout: os.Stdout, Stderr: os.Stderr}}
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
		// Otherwise cobra prints pages of help for every error, and the error scrolls off the screen.
		SilenceUsage:       true,
		SilenceErrors:      true,
		DisableSuggestions: true, // see suggest
	}
	f := root.PersistentFlags()
	f.StringVar(&a.Host, "host", "", "URL of the daemon (BERTH_HOST); default: that of the "+
		"daemon on this machine, or "+cfg.Host)
	f.StringVar(&a.Key, "api-key", "",
		"API key; visible to other users of this machine, so prefer BERTH_API_KEY or a file")
	f.StringVar(&a.KeyFile, "api-key-file", "", "file with the API key (default "+filepath.Join(cfg.DataDir,
		cfg.Places.Key)+")")
	f.StringVar(&a.CA, "ca", os.Getenv("BERTH_CA"),
		"PEM file of certificates to trust instead of the system's (BERTH_CA)")
	f.StringVar(&a.Profile, "profile", "", "`NAME` of the profile to use, see berth login "+
		"(BERTH_PROFILE); \"local\": the daemon on this machine")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return app.NewUsageError(cmd, err) })
	root.AddCommand(commands(a)...)
	root.SetHelpCommandGroupID(GroupOther)
	root.SetCompletionCommandGroupID(GroupOther)
	strict(root)
	root.AddGroup(&cobra.Group{ID: "containers", Title: "Containers:"}, &cobra.Group{ID: "execs",
		Title: "Commands in containers:"},
		&cobra.Group{ID: "data", Title: "Files and images:"}, &cobra.Group{ID: GroupOther,
			Title: "The daemon and this program:"})
	// Run reports errors, because it knows the flags.
	root.SetContext(context.WithValue(context.Background(), appKey{}, a))
	return root
}

// strict makes two mistakes fail for which cobra exits with 0: help for an unknown command, and completion for an
// unknown shell. Call it after the other commands are added; without them cobra adds no commands of its own.
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
			app.NewGroup(cmd)
		}
	}
}

// appKey is the context key under which Run finds the app.
type appKey struct{}

// commands returns all client commands, by group.
func commands(a *app.App) []*cobra.Command {
	groups := map[string][]*cobra.Command{
		"containers": append(stateCommands(a), runCommand(a), createCommand(a), listCommand(a), inspectCommand(a),
			extendCommand(a), renameCommand(a), updateCommand(a), forkCommand(a), restoreCommand(a), snapshotCommand(a),
			removeCommand(a), watch.EventsCommand(a), watch.StatsCommand(a), watch.PortsCommand(a),
			watch.ForwardCommand(a), watch.OpenCommand(a), watch.ApprovalsCommand(a), data.CopyCommand(a),
			data.WatchCommand(a),
			data.FindCommand(a), data.GrepCommand(a), data.WorkspacesCommand(a)),
		"execs": {execCommand(a), attachCommand(a), code.Command(a), code.ContextsCommand(a), psCommand(a),
			logsCommand(a),
			waitCommand(a), killCommand(a), data.JobsCommand(a), tools.ToolCommand(a), tools.StoredCommand(a),
			tools.CallsCommand(a), tools.MCPCommand(a)},
		"data": {data.FilesCommand(a), data.SkillsCommand(a), data.ImageCommand(a)},
		GroupOther: {admin.KeyCommand(a), admin.AuditCommand(a), admin.BackupCommand(a), admin.VaultCommand(a),
			watch.WebhooksCommand(a), watch.ConsoleCommand(a), admin.GCCommand(a), admin.E2BCommand(a),
			admin.LibreChatCommand(a), admin.VersionCommand(a),
			admin.LoginCommand(a), admin.LogoutCommand(a), admin.ProfilesCommand(a),
			admin.AttackCommand(a), admin.AttackProbeCommand(a), admin.BenchCommand(a)},
	}
	if a.Config.Doctor != nil {
		groups[GroupOther] = append(groups[GroupOther], admin.DoctorCommand(a))
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
	a, ok := ctx.Value(appKey{}).(*app.App)
	if !ok {
		panic("cli: Run needs the command that New made")
	}
	return a.ReportError(suggest(root, root.ExecuteContext(ctx)))
}

// suggest adds commands to the error for an unknown command. Cobra would add them itself, but also "attack" for
// "atack": an attack is not to be started by a slip of the hand.
func suggest(root *cobra.Command, err error) error {
	var typed, path string
	if err == nil {
		return nil
	}
	if n, _ := fmt.Sscanf(err.Error(), "unknown command %q for %q", &typed, &path); n < 2 {
		return err
	}
	group, _, ferr := root.Find(strings.Fields(path)[1:])
	if ferr != nil {
		return err
	}
	group.SuggestionsMinimumDistance = min(2, len(typed)/2) // of a word of two letters, any other is two away
	found := slices.DeleteFunc(group.SuggestionsFor(typed), func(s string) bool { return s == "attack" })
	if len(found) == 0 {
		return app.WithHint(err, "`"+strings.Replace(path, "berth", "berth help", 1)+"` lists the commands")
	}
	return app.WithHint(err, "did you mean `"+path+" "+strings.Join(found, "` or `"+path+" ")+"`?")
}
