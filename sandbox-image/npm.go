package sandboximage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/layer"
	"berth/sandbox-image/recipe"
)

// modules lets the host's npm fetch the locked modules without running any code of them.
func (s *stack) modules(ctx context.Context, dir string, a recipe.Layer) error {
	s.Step(buildenv.Step{Name: buildenv.StepDownloading, Item: "modules of npm"})
	work := filepath.Join(s.dir, "npm")
	if err := buildenv.WriteFiles(work, a.Tree); err != nil {
		return buildenv.IOError("the build directory", err)
	}
	defer os.RemoveAll(work)
	cmd := buildenv.Command{
		Path: npm.program,
		Args: []string{"ci", "--prefix", work, "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund",
			"--no-update-notifier",
			"--cache", filepath.Join(s.Cache, "npm"), "--logs-max=0"},
		Env: append(os.Environ(), "LC_ALL=C.UTF-8"),
		Log: s.Log,
	}
	if _, err := cmd.Run(ctx); err != nil {
		return buildenv.Unavailable(ctx, "the modules of npm cannot be downloaded", err)
	}
	if err := os.Rename(filepath.Join(work, "node_modules"), dir); err != nil {
		return buildenv.IOError("the modules of npm", err)
	}
	size, err := layer.TreeSize(dir, nil)
	s.Step(buildenv.Step{Name: buildenv.StepDownloading, Item: fmt.Sprintf("modules of npm %.1f MB",
		float64(size)/1e6)})
	return err
}
