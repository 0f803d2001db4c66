package meter

import (
	"os"
	"path/filepath"
	"testing"
)

// Both versions of cgroups are read; what is missing is unknown.
func TestUsageOfBothVersions(t *testing.T) {
	for name, tt := range map[string]struct {
		files     map[string]string
		v2        bool
		used      int64
		cache     int64
		throttled float64
	}{
		"v1": {map[string]string{"memory.usage_in_bytes": "1000\n",
			"memory.stat": "cache 1\ninactive_file 2\ntotal_cache 700\ntotal_inactive_file 300\n",
			"cpu.stat":    "nr_periods 4\nnr_throttled 1\nthrottled_time 2500000000\n"}, false, 700, 700, 2.5},
		"v2": {map[string]string{"memory.current": "1000\n", "memory.stat": "anon 5\nfile 600\ninactive_file 1200\n",
			"cpu.stat": "usage_usec 1\nthrottled_usec 1500000\n"}, true, 0, 600, 1.5},
		"nothing": {nil, true, -1, -1, -1},
	} {
		dir := t.TempDir()
		for file, text := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if used, cache := memoryIn(dir, tt.v2); used != tt.used || cache != tt.cache {
			t.Errorf("%s: %d used, %d cache", name, used, cache)
		}
		if n := throttledIn(dir, tt.v2); n != tt.throttled {
			t.Errorf("%s: throttled %v", name, n)
		}
	}
}
