package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"berth/backup"
	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
)

// BackupCommand returns `berth backup`.
func BackupCommand(a *app.App) *cobra.Command {
	return app.NewGroup(&cobra.Command{Use: "backup", Short: "Backups of all that a daemon keeps",
		Long: `Backups of all that a daemon keeps, as of one moment: containers with their files, snapshots, images,
stored files, tools, skills, API keys, secrets, and the audit log. Protect a backup like passwords: who has it has all
of these.`},
		takeBackupCommand(a), checkBackupCommand(a), restoreBackupCommand(a))
}

// A backupReport is what the commands print about a backup.
type backupReport struct {
	File    string    `json:"file"`
	Version string    `json:"version"` // of the daemon
	MadeAt  time.Time `json:"made_at"`
	// how long the daemon changed nothing, in milliseconds
	HeldMillis int64 `json:"held_ms"`
	Trees      int   `json:"trees"` // workspaces, layers and snapshots
	Files      int   `json:"files"`
	Bytes      int64 `json:"bytes"` // about, before compression
}

func printBackup(a *app.App, file string, m backup.Manifest) error {
	r := backupReport{File: file, Version: m.Version, MadeAt: m.MadeAt, HeldMillis: m.HeldMillis, Trees: len(m.Trees),
		Files: m.Files, Bytes: m.Bytes}
	if a.JSON {
		return a.PrintJSON(r)
	}
	return a.Table([]string{"FILE", "MADE", "VERSION", "HELD", "TREES", "FILES", "SIZE"}, [][]string{{r.File,
		r.MadeAt.Local().Format(time.DateTime), r.Version, fmt.Sprint(time.Duration(r.HeldMillis) * time.Millisecond),
		fmt.Sprint(r.Trees), fmt.Sprint(r.Files), term.Size(r.Bytes)}})
}

func takeBackupCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "create FILE", Aliases: []string{"take"}, Short: "Write a backup of the daemon into a new file",
		Args: app.ArgCount(1, 1),
		Long: `Write a backup of the daemon into a new file, a tar that is compressed by zstd. "-" is standard output.
The daemon goes on meanwhile: changes wait for some milliseconds for each container, and commands in containers do not.
Each tree of files is as of one moment. It takes an admin's key.`,
		Example: "  berth backup create berth.tar.zst\n  berth backup check berth.tar.zst",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			m, err := takeBackup(ctx, a, c, args[0])
			if err != nil {
				return err
			}
			if args[0] == "-" {
				return nil
			}
			return printBackup(a, args[0], m)
		}),
	}
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}

// takeBackup writes a backup into a file, which gets its name when it is whole.
func takeBackup(ctx context.Context, a *app.App, c *client.Client, path string) (m backup.Manifest, err error) {
	if path == "-" {
		return receiveBackup(ctx, a, c, "", a.Stdout)
	}
	if _, err := os.Lstat(path); err == nil {
		return m, fmt.Errorf("%s exists; give the backup another name, or remove that file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-backup-*") // mode 0600
	if err != nil {
		return m, err
	}
	defer os.Remove(f.Name()) // fails harmlessly after the rename
	m, err = receiveBackup(ctx, a, c, filepath.Base(path), f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return m, err
	}
	return m, os.Rename(f.Name(), path)
}

// receiveBackup checks a backup while it arrives, and writes it compressed.
func receiveBackup(ctx context.Context, a *app.App, c *client.Client, name string, w io.Writer) (m backup.Manifest,
	err error) {
	d, err := c.Backup(ctx)
	if err != nil {
		return m, err
	}
	defer d.Close()
	packed, err := zstd.NewWriter(w)
	if err != nil {
		return m, err
	}
	bar := a.NewProgress()
	defer bar.End()
	arriving := io.TeeReader(d, packed)
	m, err = backup.Check(ctx, arriving, func(done, total int64) {
		bar.At("backing up", cmp.Or(name, "standard output"), done, total, true)
	})
	if err == nil {
		_, err = io.Copy(io.Discard, arriving)
	}
	return m, errors.Join(err, packed.Close())
}

func checkBackupCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Check that a backup is whole", Args: app.ArgCount(1, 1),
		Long: "Read a backup to its end and compare its checksum. It takes no daemon and no key. \"-\" is standard " +
			"input.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := app.UntilSignal(cmd.Context())
			defer stop()
			m, err := readBackup(a, args[0], "checking", func(r io.Reader, progress func(done, total int64)) (
				backup.Manifest, error) {
				return backup.Check(ctx, r, progress)
			})
			if err != nil {
				return app.WithSignal(ctx, err)
			}
			return printBackup(a, args[0], m)
		},
	}
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}

func restoreBackupCommand(a *app.App) *cobra.Command {
	dir := a.Config.DataDir
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Make a daemon's data directory of a backup", Args: app.ArgCount(1, 1),
		Long: `Make a daemon's data directory of a backup, as root, on the daemon's machine. The directory must be empty
or missing, so no daemon runs over it. The next start of the daemon imports the images. Containers are stopped then,
and start again at their next use; what ran in them is lost. "-" is standard input.`,
		Example: "  sudo systemctl stop berth\n  sudo mv /var/lib/berth /var/lib/berth.old\n" +
			"  sudo berth backup restore berth.tar.zst\n  sudo systemctl start berth",
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Geteuid() != 0 {
				return errors.New("a restored directory has files of many users and needs root; run it with sudo")
			}
			ctx, stop := app.UntilSignal(cmd.Context())
			defer stop()
			to, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(a.Stderr, nil))
			m, err := readBackup(a, args[0], "restoring", func(r io.Reader, progress func(done, total int64)) (
				backup.Manifest, error) {
				return backup.Restore(ctx, r, to, progress, log)
			})
			if err != nil {
				return app.WithSignal(ctx, err)
			}
			return printBackup(a, args[0], m)
		},
	}
	cmd.Flags().StringVar(&dir, "data", dir, "data directory to make")
	return a.AddFormatFlags(a.AddQuietFlag(cmd, "show no progress"))
}

// readBackup opens a backup and reads it, with progress.
func readBackup(a *app.App, path, step string, read func(io.Reader, func(done, total int64)) (backup.Manifest, error)) (
	m backup.Manifest, err error) {
	in := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return m, err
		}
		defer f.Close()
		in = f
	}
	bar := a.NewProgress()
	defer bar.End()
	m, err = read(in, func(done, total int64) { bar.At(step, filepath.Base(path), done, total, true) })
	switch {
	case errors.Is(err, backup.ErrNotABackup):
		return m, app.WithHint(err, "`berth backup create FILE` makes one")
	case errors.Is(err, backup.ErrNotWhole):
		return m, app.WithHint(err, "take another copy of the file, or an older backup")
	case errors.Is(err, fs.ErrPermission):
		return m, app.WithHint(err, "run it with sudo")
	}
	return m, err
}
