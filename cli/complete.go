package cli

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

// suggest makes a completion of a suggester. Errors are swallowed: there is no place beside a half-typed command line
// to show one.
func (a *app) suggest(fn suggester) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := a.client()
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

// describe is a suggestion with a few words about it.
// Labels and commands are other people's words, and end up on a terminal.
func describe(id string, words ...string) cobra.Completion {
	return cobra.CompletionWithDesc(term.Printable(id), term.Printable(strings.Join(words, " ")))
}

// completeContainers suggests container IDs and names for the first most arguments; negative is all.
func (a *app) completeContainers(most int) cobra.CompletionFunc {
	return a.suggest(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if most >= 0 && len(args) >= most {
			return nil
		}
		return suggestContainers(ctx, c, "")
	})
}

// suggestContainers gives every container by its ID, and by its name where it has one; suffix follows both.
// Expired ones are left out, as no command but `rm` has a use for them. A list that
// fails is an empty one.
func suggestContainers(ctx context.Context, c *client.Client, suffix string) (all []cobra.Completion) {
	list, _ := c.Containers(ctx, client.Filter{})
	for _, con := range list {
		all = append(all, describe(con.ID+suffix, string(con.State), con.Image, term.LabelText(con.Labels)))
		if name := con.Labels[nameLabel]; name != "" {
			all = append(all, describe(name+suffix, con.ID))
		}
	}
	return all
}

// completeWithin suggests a container, then what within finds in the one that was chosen.
func (a *app) completeWithin(within func(ctx context.Context, c *client.Client,
	container string) []cobra.Completion) cobra.CompletionFunc {
	return a.suggest(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		switch len(args) {
		case 0:
			return suggestContainers(ctx, c, "")
		case 1:
			if id, err := a.container(ctx, c, args[0]); err == nil {
				return within(ctx, c, id)
			}
		}
		return nil
	})
}

// completeExecs suggests a container, then one of its execs.
func (a *app) completeExecs(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.completeWithin(func(ctx context.Context, c *client.Client, id string) (all []cobra.Completion) {
		list, _ := c.Execs(ctx, id)
		for _, e := range list {
			all = append(all, describe(e.ID, endText(e), term.Short(term.CommandText(e), 40)))
		}
		return all
	})(cmd, args, toComplete)
}

// completeJobs suggests a container, then one of its jobs.
func (a *app) completeJobs(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.completeWithin(func(ctx context.Context, c *client.Client, id string) (all []cobra.Completion) {
		list, _ := c.Jobs(ctx, id)
		for _, j := range list {
			all = append(all, describe(j.JobID, term.Ago(j.UpdatedAt.Time)))
		}
		return all
	})(cmd, args, toComplete)
}

// completeFiles suggests stored files by their IDs, since filenames may be equal.
func (a *app) completeFiles(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		list, _ := c.Files(ctx)
		for _, f := range list {
			all = append(all, describe(f.ID, f.Filename, term.Size(f.SizeBytes)))
		}
		return all
	})(cmd, args, toComplete)
}

// completeImages suggests images by name.
func (a *app) completeImages(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		list, _ := c.Images(ctx)
		for _, i := range list {
			all = append(all, describe(i.Name, term.Size(i.SizeBytes)))
		}
		return all
	})(cmd, args, toComplete)
}

// completeWorkspaces suggests workspaces, with the container that has each.
// A workspace that has a container cannot be given to another, and its suggestion says so.
func (a *app) completeWorkspaces(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		list, _ := c.Workspaces(ctx)
		for _, w := range list {
			all = append(all, describe(w.ID, w.ContainerID))
		}
		return all
	})(cmd, args, toComplete)
}

// completeKeys suggests API keys that may be used, with their names.
// Names are shown beside the IDs and not suggested: key commands take IDs alone.
func (a *app) completeKeys(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	return a.suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		list, _ := c.Keys(ctx)
		for _, k := range list {
			if keyState(k, time.Now()) == "active" {
				all = append(all, describe(k.ID, k.Name))
			}
		}
		return all
	})(cmd, args, toComplete)
}

// completeCopy suggests containers with the colon that a path follows, beside the files here.
func (a *app) completeCopy(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	all, _ := a.suggest(func(ctx context.Context, c *client.Client, _ []string) []cobra.Completion {
		return suggestContainers(ctx, c, ":")
	})(cmd, args, toComplete)
	// Default lets the shell add the files here. Once a container fits, no space follows the
	// colon: the path does.
	if toComplete == "" || len(all) == 0 {
		return all, cobra.ShellCompDirectiveDefault
	}
	return all, cobra.ShellCompDirectiveNoSpace
}

// completeContainerFlags suggests values for the flags that make a container. Registering fails only for a flag
// that does not exist.
func (a *app) completeContainerFlags(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("image", a.completeImages)
	_ = cmd.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces)
	_ = cmd.RegisterFlagCompletionFunc("class", cobra.FixedCompletions([]cobra.Completion{"runc", "gvisor"},
		cobra.ShellCompDirectiveNoFileComp))
}
