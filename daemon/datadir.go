package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

// dirMode is the mode of the data directory: mapped users must be able to pass through it.
const dirMode = 0o711

// ownModes are the modes of what the daemon makes in its data directory and others must not read, by glob pattern.
// Files with keys are not among them: if others can read one, the daemon refuses to use it, since they may have read
// it.
var ownModes = []struct {
	pattern string
	mode    fs.FileMode
}{
	{"files", 0o700}, {"skills", 0o700}, {"output", 0o700}, {"builds", 0o700}, {"e2b", 0o700}, {"runtime/ctr", 0o700},
	{"runtime/pool.img", 0o600},
	{"config.json", 0o640}, {"daemon.log", 0o600}, {"ledger.db", 0o600}, {"ledger.db.*", 0o600}, {"audit.log", 0o600},
	{"audit-*.log", 0o600},
}

// ownEntries may be in a new data directory. A new file system has the first; the second may be a mount point, and
// `berth up` makes the third.
var ownEntries = []string{"lost+found", "runtime", "daemon.log"}

// openDir makes the data directory, or closes one to others that is open to them, as after a copy without modes. It
// refuses a directory with files of other programs, such as /tmp, since it would close that to its users.
func openDir(dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the data directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	_, unknown := os.Stat(filepath.Join(dir, "ledger.db"))
	foreign := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !slices.Contains(ownEntries, e.Name()) })
	if wide(info.Mode(), dirMode) && foreign && unknown != nil {
		return fmt.Errorf("the data directory %s is open to others (mode %04o) and has files that are not the "+
			"daemon's; give a directory of its own with --data, or run `chmod 0711 %s`", dir, info.Mode().Perm(), dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if err := narrow(real, dirMode, log); err != nil {
		return err
	}
	for _, own := range ownModes {
		paths, err := filepath.Glob(filepath.Join(dir, own.pattern))
		for _, path := range paths {
			err = errors.Join(err, narrow(path, own.mode, log))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wide reports whether a mode permits what allowed does not, to others than root.
func wide(mode, allowed fs.FileMode) bool { return mode.Perm()&^allowed&0o077 != 0 }

// narrow removes from the mode of a path what allowed does not permit to others. Links are left alone.
func narrow(path string, allowed fs.FileMode, log *slog.Logger) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink || !wide(info.Mode(), allowed) {
		return nil
	}
	log.Warn("others could use this; it is closed to them now", "path", path, "mode",
		fmt.Sprintf("%04o", info.Mode().Perm()))
	if err := os.Chmod(path, info.Mode().Perm()&allowed); err != nil {
		return fmt.Errorf("closing the data directory to others: %w", err)
	}
	return nil
}
