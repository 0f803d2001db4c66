package app

import (
	"context"
	"strings"
	"time"

	"berth/cli/term"
	"berth/client"
	"berth/proto"

	"github.com/spf13/cobra"
)

// completeTimeout is the longest time that a shell waits for suggestions. After a longer time the shell seems to
// hang.
const completeTimeout = 2 * time.Second

// A suggester returns suggestions for the next argument. It returns none if the daemon does not answer.
type suggester func(ctx context.Context, c *client.Client, args []string) []cobra.Completion

// Suggest converts a suggester into a completion function. It drops errors, because a half-typed command line has no
// place for them.
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

// startingWith keeps the suggestions with a prefix. Most shells would do that, but not all.
func startingWith(all []cobra.Completion, prefix string) []cobra.Completion {
	var some []cobra.Completion
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			some = append(some, s)
		}
	}
	return some
}

// Suggestion returns a suggestion with a description. It removes control characters: labels and commands come from
// other users, and the shell prints them on a terminal.
func Suggestion(id string, words ...string) cobra.Completion {
	return cobra.CompletionWithDesc(term.Printable(id), term.Printable(strings.Join(words, " ")))
}

// CompleteFlag suggests fixed values for a flag.
func CompleteFlag[S ~string](cmd *cobra.Command, flag string, values ...S) {
	all := make([]cobra.Completion, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	// Registering fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteContainers suggests container IDs and names for the first most arguments. A negative most means all
// arguments.
func (a *App) CompleteContainers(most int) cobra.CompletionFunc {
	return a.Suggest(func(ctx context.Context, c *client.Client, args []string) []cobra.Completion {
		if most >= 0 && len(args) >= most {
			return nil
		}
		return SuggestContainers(ctx, c, "")
	})
}

// SuggestContainers suggests each container by ID, and by name if it has one. suffix is appended to both. It omits
// expired containers, because only `rm` accepts them. If the list fails, it suggests nothing.
func SuggestContainers(ctx context.Context, c *client.Client, suffix string) (all []cobra.Completion) {
	list, _ := c.Containers(ctx, client.Filter{})
	for _, con := range list {
		all = append(all, Suggestion(con.ID+suffix, string(con.State), con.Image, term.LabelText(con.Labels)))
		if name := ContainerName(con); name != "" {
			all = append(all, Suggestion(name+suffix, con.ID))
		}
	}
	return all
}

// CompleteList suggests the items of a list.
func CompleteList[T any](a *App, list func(*client.Client, context.Context) ([]T, error),
	suggestion func(T) cobra.Completion) cobra.CompletionFunc {
	return a.Suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		items, _ := list(c, ctx)
		for _, item := range items {
			all = append(all, suggestion(item))
		}
		return all
	})
}

// CompleteListOf suggests a container, then the items of a list of that container.
func CompleteListOf[T any](a *App, list func(*client.Client, context.Context, string) ([]T, error),
	suggestion func(T) cobra.Completion) cobra.CompletionFunc {
	return a.Suggest(func(ctx context.Context, c *client.Client, args []string) (all []cobra.Completion) {
		switch len(args) {
		case 0:
			return SuggestContainers(ctx, c, "")
		case 1:
			if id, err := a.FindContainer(ctx, c, args[0]); err == nil {
				items, _ := list(c, ctx, id)
				for _, item := range items {
					all = append(all, suggestion(item))
				}
			}
		}
		return all
	})
}

// CompleteExecs suggests a container, then one of its execs.
func (a *App) CompleteExecs() cobra.CompletionFunc {
	return CompleteListOf(a, (*client.Client).Execs, func(e proto.Exec) cobra.Completion {
		return Suggestion(e.ID, term.EndText(e), term.Short(term.CommandText(e), 40))
	})
}

// CompleteFiles suggests stored files by ID, since filenames may be equal.
func (a *App) CompleteFiles() cobra.CompletionFunc {
	return CompleteList(a, (*client.Client).Files, func(f client.File) cobra.Completion {
		return Suggestion(f.ID, f.Filename, term.Size(f.SizeBytes))
	})
}

// CompleteImages suggests images by name.
func (a *App) CompleteImages() cobra.CompletionFunc {
	return CompleteList(a, (*client.Client).Images, func(i proto.Image) cobra.Completion {
		return Suggestion(i.Name, term.Size(i.SizeBytes))
	})
}

// CompleteWorkspaces suggests workspaces. The description names the container that uses the workspace, since such a
// workspace cannot be given to another container.
func (a *App) CompleteWorkspaces() cobra.CompletionFunc {
	return CompleteList(a, (*client.Client).Workspaces, func(w proto.Workspace) cobra.Completion {
		return Suggestion(w.ID, w.ContainerID)
	})
}
