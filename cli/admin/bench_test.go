package admin

import (
	"context"
	"path/filepath"
	"testing"

	"berth/cli/app"
)

// TestBenchDirIsAbsolute checks that the directory is absolute: a daemon gets it and may have another working
// directory.
func TestBenchDirIsAbsolute(t *testing.T) {
	var dir string
	a := &app.App{Config: app.Config{Bench: func(_ context.Context, run app.BenchRun) (bool, error) {
		dir = run.Dir
		return true, nil
	}}}
	if err := runBench(t.Context(), a, app.BenchRun{Dir: "here"}); err != nil || !filepath.IsAbs(dir) ||
		filepath.Base(dir) != "here" {
		t.Errorf("%q, %v", dir, err)
	}
}
