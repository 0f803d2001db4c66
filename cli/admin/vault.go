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
		Long: `The keys that secrets of containers and of stored tools are sealed with on disk: the file secret-key in the data directory.

Both commands ask the daemon, with an admin's key. With --data they work on the directory of a daemon that does not run.`},
		rotateCommand(a, "rotate", false, "Make a new key, and seal all secrets anew",
			"Make a new key, and seal all secrets anew with it. Older keys stay in the file, since copies of the "+
				"ledger need them: see forget."),
		rotateCommand(a, "forget", true, "Take all keys but the newest out of the file",
			"Seal with the newest key what is not yet, and take all others out of the file. Secrets in copies of "+
				"the ledger that were made before the last\nrotation can then not be opened any more, unless you "+
				"kept a copy of the file."))
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
	return a.AddJSONFlag(cmd)
}

func printRotation(a *app.App, done client.Rotation) error {
	if a.JSON {
		return a.PrintJSON(done)
	}
	if done.Closed > 0 {
		fmt.Fprintf(a.Stderr, "%d records are sealed with keys that are not in the file, and stay closed\n",
			done.Closed)
	}
	return a.Table([]string{"KEY", "KEYS IN THE FILE", "SEALED ANEW"},
		[][]string{{done.KeyID, fmt.Sprint(done.Keys), fmt.Sprint(done.Resealed)}})
}
