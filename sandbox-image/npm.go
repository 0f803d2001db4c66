package sandboximage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// modules lets the host's npm fetch the locked modules without running any code of them.
func (s *stack) modules(ctx context.Context, dir string, a addition) error {
	s.Step(Step{Name: StepDownloading, Item: "modules of npm"})
	work := filepath.Join(s.dir, "npm")
	if err := writeFiles(work, a.tree); err != nil {
		return ioError("the build directory", err)
	}
	defer os.RemoveAll(work)
	cmd := command{
		path: npm.program,
		args: []string{"ci", "--prefix", work, "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund",
			"--no-update-notifier",
			"--cache", filepath.Join(s.Cache, "npm"), "--logs-max=0"},
		env: append(os.Environ(), "LC_ALL=C.UTF-8"),
		log: s.Log,
	}
	if _, err := cmd.run(ctx); err != nil {
		return unavailable(ctx, "the modules of npm cannot be downloaded", err)
	}
	if err := os.Rename(filepath.Join(work, "node_modules"), dir); err != nil {
		return ioError("the modules of npm", err)
	}
	size, err := treeSize(dir, nil)
	s.Step(Step{Name: StepDownloading, Item: fmt.Sprintf("modules of npm %.1f MB", float64(size)/1e6)})
	return err
}
