package app

import (
	"context"

	"github.com/spf13/cobra"

	"berth/cli/term"
	"berth/client"
)

// A Noun is a kind of item. It makes the commands that all kinds have: ls and rm.
type Noun[T any] struct {
	// ls
	ListShort string
	List      func(c *client.Client, ctx context.Context) ([]T, error)
	ListOf    func(c *client.Client, ctx context.Context, container string) ([]T, error) // in place of List
	Columns   term.Columns[T]
	Quiet     string // help of --quiet; "": none

	// rm
	Argument    string // in the usage: "FILE"
	RemoveShort string
	RemoveLong  string
	Complete    cobra.CompletionFunc
	Find        func(ctx context.Context, c *client.Client, name string) (id string, err error) // nil: by ID only
	Remove      func(c *client.Client, ctx context.Context, id string) error
}

// ListCommand returns `berth NOUN ls`. With ListOf, the command has the argument CONTAINER.
func (n Noun[T]) ListCommand(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: n.ListShort, Args: ArgCount(0, 0),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := n.List(c, ctx)
			if err != nil {
				return err
			}
			return term.PrintList(&a.Output, list, n.Columns)
		}),
	}
	if n.ListOf != nil {
		cmd.Use, cmd.Args, cmd.ValidArgsFunction = "ls CONTAINER", ArgCount(1, 1), a.CompleteContainers(1)
		cmd.RunE = a.WithContainer(func(ctx context.Context, c *client.Client, id string, _ []string) error {
			list, err := n.ListOf(c, ctx, id)
			if err != nil {
				return err
			}
			return term.PrintList(&a.Output, list, n.Columns)
		})
	}
	if n.Quiet != "" {
		a.AddQuietFlag(cmd, n.Quiet)
	}
	return a.AddListFlags(cmd)
}

// RemoveCommand returns `berth NOUN rm`. It prints each ID after the deletion. An error for one item does not stop
// the others.
func (n Noun[T]) RemoveCommand(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "rm " + n.Argument + "…", Aliases: []string{"delete"}, Short: n.RemoveShort, Long: n.RemoveLong,
		Args: ArgCount(1, -1), ValidArgsFunction: n.Complete,
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			return EachName(ctx, args, func(name string) (err error) {
				id := name
				if n.Find != nil {
					if id, err = n.Find(ctx, c, name); err != nil {
						return err
					}
				}
				if err := n.Remove(c, ctx, id); err != nil {
					return err
				}
				return a.PrintIDs(id)
			})
		}),
	}
}
