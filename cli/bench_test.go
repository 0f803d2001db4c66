package cli

import (
	"context"
	"path/filepath"
	"testing"
)

// A daemon is given the directory, and may have another working directory than this process.
func TestBenchDirIsAbsolute(t *testing.T) {
	var dir string
	a := &app{cfg: Config{Bench: func(_ context.Context, run BenchRun) (bool, error) {
		dir = run.Dir
		return true, nil
	}}}
	if err := a.bench(t.Context(), BenchRun{Dir: "here"}); err != nil || !filepath.IsAbs(dir) ||
		filepath.Base(dir) != "here" {
		t.Errorf("%q, %v", dir, err)
	}
}
