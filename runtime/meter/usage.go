package meter

import (
	"os"
	"path/filepath"

	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/session/limits"
)

// Usage returns what a sandbox uses, from its cgroups alone: it neither wakes nor resumes the sandbox. The spaces are
// left out; a Reading has them.
func Usage(sandbox string) limits.Usage {
	u := limits.UnknownUsage
	u.CPUSeconds = CPUSeconds(sandbox)
	dir, v2 := cgroup.Dir(sandbox, "cpu")
	u.ThrottledSeconds = throttledIn(dir, v2)
	dir, v2 = cgroup.Dir(sandbox, "memory")
	u.MemoryBytes, u.CacheBytes = memoryIn(dir, v2)
	dir, _ = cgroup.Dir(sandbox, "pids")
	u.Tasks = numberIn(filepath.Join(dir, "pids.current"))
	return u
}

// Spaces returns the disk space of a workspace and of the layer of a sandbox, which need not exist.
func Spaces(d *diskpool.Pool, sandbox, workspace string) (work, layer limits.Space) {
	for path, space := range map[string]*limits.Space{d.WorkspacePath(workspace): &work, d.LayerPath(sandbox): &layer} {
		q := quotaOf(d, path)
		q.read(space)
		q.close()
	}
	return work, layer
}

// numberIn reads a file with one number; -1 if there is none.
func numberIn(path string) int64 {
	p := openPage(path)
	defer p.close()
	if n, ok := p.number(); ok {
		return n
	}
	return -1
}

// throttledIn reads for how long the CPU limit held the processes of cgroup dir. v1 counts in nanoseconds, and v2 in
// microseconds.
func throttledIn(dir string, v2 bool) float64 {
	key, unit := "throttled_time", 1e9
	if v2 {
		key, unit = "throttled_usec", 1e6
	}
	p := openPage(filepath.Join(dir, "cpu.stat"))
	defer p.close()
	if n, ok := tallyIn(p.read(), key); ok {
		return float64(n) / unit
	}
	return -1
}

// memoryIn reads the memory of cgroup dir and of those below. The kernel counts file cache as used. The part that no
// process has touched for a while is not a need, so it is taken off, as other tools do.
func memoryIn(dir string, v2 bool) (used, cache int64) {
	file, inactive, cached := "memory.usage_in_bytes", "total_inactive_file", "total_cache"
	if v2 {
		file, inactive, cached = "memory.current", "inactive_file", "file"
	}
	used = numberIn(filepath.Join(dir, file))
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat")) // longer than a page
	if used < 0 || err != nil {
		return used, -1
	}
	if n, ok := tallyIn(stat, inactive); ok {
		used = max(0, used-n)
	}
	cache, ok := tallyIn(stat, cached)
	if !ok {
		cache = -1
	}
	return used, cache
}
