package meter

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCPUSeconds reads the files of both versions of cgroups, as kernels write them.
func TestCPUSeconds(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(v1, "cpuacct.usage"): "2500000000\n",
		filepath.Join(v2, "cpu.stat"):      "usage_usec 1250000\nuser_usec 1000000\nsystem_usec 250000\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := cpuSecondsIn(v1, false); got != 2.5 {
		t.Errorf("v1: %v", got)
	}
	if got := cpuSecondsIn(v2, true); got != 1.25 {
		t.Errorf("v2: %v", got)
	}
	if got := cpuSecondsIn(filepath.Join(v2, "gone"), true); got != -1 {
		t.Errorf("no cgroup: %v", got)
	}
}
