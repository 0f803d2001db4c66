package admin

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/app/profile"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// LoginCommand returns `berth login`. It keeps nothing that the daemon does not accept.
func LoginCommand(a *app.App) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "login [flags] URL", Short: "Keep the URL and the key of a daemon for later commands",
		Args: app.ArgCount(1, 1),
		Long: `Check the key with the daemon, and keep both as a profile. Later commands use it, unless --host,
--profile or their variables say otherwise. The key is that of --api-key-file, --api-key or BERTH_API_KEY, or else it is asked for. The
profiles are in berth/profiles.json in the directory for settings of the user, who alone can read them.`,
		Example: "  berth login https://berth.example.com\n" +
			"  berth login --name lab --ca ca.pem --api-key-file key https://10.0.0.7:7117\n" +
			"  berth --profile lab ls",
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := url.Parse(args[0])
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
				return proto.Errorf(proto.InvalidArgument, "", "url", "%q is no URL of a daemon; write it as "+
					"https://berth.example.com", args[0])
			}
			if name == "" {
				name = u.Hostname()
			}
			if err := a.AskKey(); err != nil {
				return err
			}
			a.Host = args[0]
			return a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
				return login(ctx, a, c, name, args[0])
			})(cmd, nil)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the profile (default: the host of the URL)")
	return cmd
}

// login checks a key and keeps it.
func login(ctx context.Context, a *app.App, c *client.Client, name, host string) error {
	status, err := c.KeyStatus(ctx, "self")
	if err != nil {
		return err
	}
	p := profile.Profile{URL: host, Key: c.Key()}
	if a.CA != "" {
		ca, err := os.ReadFile(a.CA)
		if err != nil {
			return err
		}
		p.CA = string(ca)
	}
	all, err := profile.Open()
	if err != nil {
		return err
	}
	if err := all.Set(name, p); err != nil {
		return err
	}
	fmt.Fprintf(a.Stderr, "logged in to %s as %s (%s)\n", term.Printable(host), term.Printable(status.Owner),
		keyRole(status.Key))
	return a.PrintIDs(name)
}

// LogoutCommand returns `berth logout`. The key stays good: it may be in use elsewhere.
func LogoutCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "logout [PROFILE]", Short: "Forget the URL and the key of a daemon", Args: app.ArgCount(0, 1),
		Long:              "Remove a profile, or the current one. Its key stays good; `berth key revoke` ends it.",
		ValidArgsFunction: completeProfiles,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := profile.Open()
			if err != nil {
				return err
			}
			removed, err := all.Remove(strings.Join(args, ""))
			if err != nil {
				return err
			}
			return a.PrintIDs(removed)
		},
	}
}

// A profileLine is a profile as `berth profiles` prints it, without its key.
type profileLine struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Current bool   `json:"current"`
}

// ProfilesCommand returns `berth profiles`.
func ProfilesCommand(a *app.App) *cobra.Command {
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List profiles", Args: app.ArgCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			all, err := profile.Open()
			if err != nil {
				return err
			}
			var lines []profileLine
			for _, name := range all.Names() {
				lines = append(lines, profileLine{name, all.Profiles[name].URL, name == all.Current})
			}
			return term.PrintList(&a.Output, lines, term.Columns[profileLine]{Head: []string{"NAME", "URL", "CURRENT"},
				Row: func(p profileLine) []string {
					current := ""
					if p.Current {
						current = "yes"
					}
					return []string{p.Name, p.URL, current}
				}})
		},
	}
	use := &cobra.Command{
		Use: "use PROFILE", Short: "Make a profile the one that commands use", Args: app.ArgCount(1, 1),
		Long:              "Make a profile the one that commands use. \"local\" is the daemon on this machine.",
		ValidArgsFunction: completeProfiles,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := profile.Open()
			if err != nil {
				return err
			}
			if err := all.Use(args[0]); err != nil {
				return err
			}
			return a.PrintIDs(args[0])
		},
	}
	return app.NewGroup(&cobra.Command{Use: "profiles", Aliases: []string{"profile"},
		Short: "Profiles: the daemons that you are logged in to"}, a.AddListFlags(a.AddQuietFlag(list,
		"print names only")), use)
}

// completeProfiles suggests names of profiles.
func completeProfiles(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := profile.Open()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return all.Names(), cobra.ShellCompDirectiveNoFileComp
}
