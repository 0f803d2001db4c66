package app

import (
	"context"
	"strings"
	"time"

	"berth/cli/term"
	"berth/client"

	"github.com/spf13/cobra"
)

// completeTimeout is how long a shell waits for suggestions at most.
// Longer, and a person takes the shell for stuck.
const completeTimeout = 2 * time.Second

// A suggester gives what may stand next. A daemon that does not answer suggests nothing.
type suggester func(ctx context.Context, c *client.Client, args []string) []cobra.Completion

// Suggest makes a completion of a suggester. Errors are swallowed: there is no place beside a half-typed command line
// to show one.
func (a *App) Suggest(fn suggester) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := a.NewClient()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		return startingWith(fn(ctx, c, args), toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// startingWith filters what the shell would filter anyway; some shells do not.
func startingWith(all []cobra.Completion, prefix string) []cobra.Completion {
	var some []cobra.Completion
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			some = append(some, s)
		}
	}
	return some
}

// Suggestion is a suggestion with a few words about it.
// Labels and commands are other people's words, and end up on a terminal.
func Suggestion(id string, words ...string) cobra.Completion {
	return cobra.CompletionWithDesc(term.Printable(id), term.Printable(strings.Join(words, " ")))
}

// CompleteContainers suggests container IDs and names for the first most arguments; negative is all.
func (a *App) CompleteContainers(most int) cobra.CompletionFunc {
	return a.Suggest(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if most >= 0 && len(args) >= most {
			return nil
		}
		return SuggestContainers(ctx, c, "")
	})
}

// SuggestContainers gives every container by its ID, and by its name where it has one; suffix follows both.
// Expired ones are left out, as no command but `rm` has a use for them. A list that
// fails is an empty one.
func SuggestContainers(ctx context.Context, c *client.Client, suffix string) (all []cobra.Completion) {
	list, _ := c.Containers(ctx, client.Filter{})
	for _, con := range list {
		all = append(all, Suggestion(con.ID+suffix, string(con.State), con.Image, term.LabelText(con.Labels)))
		if name := con.Labels[NameLabel]; name != "" {
			all = append(all, Suggestion(name+suffix, con.ID))
		}
	}
	return all
}

// CompleteWithin suggests a container, then what within finds in the one that was chosen.
func (a *App) CompleteWithin(within func(ctx context.Context, c *client.Client,
	container string) []cobra.Completion) cobra.CompletionFunc {
	return a.Suggest(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		switch len(args) {
		case 0:
			return SuggestContainers(ctx, c, "")
		case 1:
			if id, err := a.FindContainer(ctx, c, args[0]); err == nil {
				return within(ctx, c, id)
			}
		}
		return nil
	})
}

// CompleteExecs suggests a container, then one of its execs.
func (a *App) CompleteExecs(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.CompleteWithin(func(ctx context.Context, c *client.Client, id string) (all []cobra.Completion) {
		list, _ := c.Execs(ctx, id)
		for _, e := range list {
			all = append(all, Suggestion(e.ID, term.EndText(e), term.Short(term.CommandText(e), 40)))
		}
		return all
	})(cmd, args, toComplete)
}

// CompleteJobs suggests a container, then one of its jobs.
func (a *App) CompleteJobs(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.CompleteWithin(func(ctx context.Context, c *client.Client, id string) (all []cobra.Completion) {
		list, _ := c.Jobs(ctx, id)
		for _, j := range list {
			all = append(all, Suggestion(j.JobID, term.Ago(j.UpdatedAt.Time)))
		}
		return all
	})(cmd, args, toComplete)
}

// CompleteFiles suggests stored files by their IDs, since filenames may be equal.
func (a *App) CompleteFiles(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.Suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		list, _ := c.Files(ctx)
		for _, f := range list {
			all = append(all, Suggestion(f.ID, f.Filename, term.Size(f.SizeBytes)))
		}
		return all
	})(cmd, args, toComplete)
}

// CompleteImages suggests images by name.
func (a *App) CompleteImages(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.Suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		list, _ := c.Images(ctx)
		for _, i := range list {
			all = append(all, Suggestion(i.Name, term.Size(i.SizeBytes)))
		}
		return all
	})(cmd, args, toComplete)
}

// CompleteWorkspaces suggests workspaces, with the container that has each.
// A workspace that has a container cannot be given to another, and its suggestion says so.
func (a *App) CompleteWorkspaces(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.Suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		list, _ := c.Workspaces(ctx)
		for _, w := range list {
			all = append(all, Suggestion(w.ID, w.ContainerID))
		}
		return all
	})(cmd, args, toComplete)
}
