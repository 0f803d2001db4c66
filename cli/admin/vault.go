package admin

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/client"
)

// VaultCommand returns `berth vault`.
func VaultCommand(a *app.App) *cobra.Command {
	return app.NewGroup(&cobra.Command{Use: "vault", Short: "The keys that secrets are sealed with on disk",
		Long: `The keys that seal secrets of containers and of stored tools on disk. They are in the file secret-key in the
data directory.

Both commands ask the daemon, with an admin's key. With --data they change the directory of a daemon that is not
running.`},
		rotateCommand(a, "rotate", false, "Make a new key, and seal all secrets again",
			"Make a new key, and seal all secrets again with it. Older keys stay in the file, because copies of the "+
				"ledger need them; see forget."),
		rotateCommand(a, "forget", true, "Remove all keys but the newest from the file",
			"Seal all secrets with the newest key, and remove the other keys from the file. Secrets in copies of "+
				"the ledger\nfrom before the last rotation can then be opened only with a copy of the old file."))
}

// rotateCommand returns `berth vault rotate` or `berth vault forget`.
func rotateCommand(a *app.App, name string, forget bool, does, long string) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{Use: name, Short: does, Long: long, Args: app.ArgCount(0, 0)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dir == "" {
			return a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
				done, err := c.RotateVault(ctx, forget)
				if err != nil {
					return err
				}
				return printRotation(a, done)
			})(cmd, args)
		}
		dir, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		done, err := a.Config.Rotate(dir, forget)
		if err != nil {
			return err
		}
		return printRotation(a, done)
	}
	if a.Config.Rotate != nil {
		cmd.Flags().StringVar(&dir, "data", "", "data directory of a daemon that is not running")
	}
	return a.AddFormatFlags(cmd)
}

func printRotation(a *app.App, done client.Rotation) error {
	if a.JSON {
		return a.PrintJSON(done)
	}
	if done.Closed > 0 {
		fmt.Fprintf(a.Stderr, "%d records are sealed with keys that are not in the file, and cannot be opened\n",
			done.Closed)
	}
	return a.Table([]string{"KEY", "KEYS IN THE FILE", "SEALED ANEW"},
		[][]string{{done.KeyID, fmt.Sprint(done.Keys), fmt.Sprint(done.Resealed)}})
}
