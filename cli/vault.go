package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"berth/client"

	"github.com/spf13/cobra"
)

// A Rotate makes a new key for secrets in a data directory that no daemon uses, or with forget takes the old ones away.
type Rotate func(dir string, forget bool) (client.Rotation, error)

// vaultCommand is `berth vault`.
func (a *app) vaultCommand() *cobra.Command {
	return group(&cobra.Command{Use: "vault", Short: "The keys that secrets are sealed with on disk",
		Long: `The keys that secrets of containers and of stored tools are sealed with on disk: the file secret-key in the data directory.

Both commands ask the daemon, with an admin's key. With --data they work on the directory of a daemon that does not run.`},
		a.rotateCommand("rotate", false, "Make a new key, and seal all secrets anew",
			"Make a new key, and seal all secrets anew with it. Older keys stay in the file, since copies of the "+
				"ledger need them: see forget."),
		a.rotateCommand("forget", true, "Take all keys but the newest out of the file",
			"Seal with the newest key what is not yet, and take all others out of the file. Secrets in copies of "+
				"the ledger that were made before the last\nrotation can then not be opened any more, unless you "+
				"kept a copy of the file."))
}

// rotateCommand is one of both.
func (a *app) rotateCommand(name string, forget bool, does, long string) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{Use: name, Short: does, Long: long, Args: takes(0, 0)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dir == "" {
			return a.do(func(ctx context.Context, c *client.Client, _ []string) error {
				done, err := c.RotateVault(ctx, forget)
				if err != nil {
					return err
				}
				return a.rotated(done)
			})(cmd, args)
		}
		dir, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		done, err := a.cfg.Rotate(dir, forget)
		if err != nil {
			return err
		}
		return a.rotated(done)
	}
	if a.cfg.Rotate != nil {
		cmd.Flags().StringVar(&dir, "data", "", "data directory of a daemon that does not run")
	}
	return a.jsonFlag(cmd)
}

func (a *app) rotated(done client.Rotation) error {
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
