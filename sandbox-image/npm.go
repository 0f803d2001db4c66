package sandboximage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// checkModules refuses npm modules that are not all pinned by hash, and a lock file that names where they were
// downloaded.
func checkModules(wanted, lock string) error {
	if wanted == "" && lock == "" {
		return nil
	}
	var l struct {
		Packages map[string]struct {
			Integrity, Resolved string
		}
	}
	if err := json.Unmarshal([]byte(lock), &l); err != nil {
		return fmt.Errorf("%s: %w", npmLockFile, err)
	}
	if len(l.Packages) < 2 { // "" is the list of wanted modules
		return fmt.Errorf("%s pins nothing", npmLockFile)
	}
	for name, p := range l.Packages {
		if name != "" && p.Integrity == "" {
			return fmt.Errorf("%s: %s has no integrity", npmLockFile, name)
		}
		if p.Resolved != "" {
			return fmt.Errorf("%s: %s says where it was downloaded from; make it with omit-lockfile-registry-resolved",
				npmLockFile, name)
		}
	}
	return nil
}

// modules lets the host's npm fetch the locked modules without running any code of them.
func (s *stack) modules(ctx context.Context, dir string, a addition) error {
	s.step(Step{Name: StepDownloading, Item: "modules of npm"})
	work := filepath.Join(s.dir, "npm")
	if err := writeFiles(work, a.tree); err != nil {
		return ioError("the build directory", err)
	}
	defer os.RemoveAll(work)
	cmd := command{
		path: npm.program,
		args: []string{"ci", "--prefix", work, "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund",
			"--no-update-notifier",
			"--cache", filepath.Join(s.cache, "npm"), "--logs-max=0"},
		env: append(os.Environ(), "LC_ALL=C.UTF-8"),
		log: s.log,
	}
	if _, err := cmd.run(ctx); err != nil {
		return unavailable(ctx, "the modules of npm cannot be downloaded", err)
	}
	if err := os.Rename(filepath.Join(work, "node_modules"), dir); err != nil {
		return ioError("the modules of npm", err)
	}
	size, err := treeSize(dir, nil)
	s.step(Step{Name: StepDownloading, Item: fmt.Sprintf("modules of npm %.1f MB", float64(size)/1e6)})
	return err
}
