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
	return SpaceOf(d, d.WorkspacePath(workspace)), SpaceOf(d, d.LayerPath(sandbox))
}

// SpaceOf returns the disk space of a subvolume of the pool; zero if it has no limit or does not exist.
func SpaceOf(d *diskpool.Pool, path string) (space limits.Space) {
	q := quotaOf(d, path)
	defer q.close()
	q.read(&space)
	return space
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
	m := readMemory(dir, v2)
	if m.Used >= 0 && m.Cache >= 0 {
		m.Used = max(0, m.Used-max(0, m.InactiveFile))
	}
	return m.Used, m.Cache
}

// Memory is the memory of a sandbox, in bytes. A number that is unknown is -1.
type Memory struct {
	Limit, Used                                      int64 // Used includes the file cache
	Cache, Anon, Shmem, Mapped, Dirty, Writeback     int64
	ActiveAnon, InactiveAnon, ActiveFile             int64
	InactiveFile, Unevictable, SlabReclaimable, Slab int64 // v1 does not tell the slabs
}

// MemoryOf reads the memory of a sandbox.
func MemoryOf(sandbox string) Memory { return readMemory(cgroup.Dir(sandbox, "memory")) }

// readMemory reads the memory of cgroup dir and of those below.
func readMemory(dir string, v2 bool) (m Memory) {
	limit, used, prefix := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
	names := [...]string{"cache", "rss", "shmem", "mapped_file", "dirty", "writeback"}
	if v2 {
		limit, used, prefix = "memory.max", "memory.current", ""
		names = [...]string{"file", "anon", "shmem", "file_mapped", "file_dirty", "file_writeback"}
	}
	m.Limit, m.Used = numberIn(filepath.Join(dir, limit)), numberIn(filepath.Join(dir, used))
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat")) // longer than a page; without it, all is unknown
	for name, to := range map[string]*int64{
		names[0]: &m.Cache, names[1]: &m.Anon, names[2]: &m.Shmem, names[3]: &m.Mapped, names[4]: &m.Dirty,
		names[5]: &m.Writeback, "active_anon": &m.ActiveAnon, "inactive_anon": &m.InactiveAnon,
		"active_file": &m.ActiveFile, "inactive_file": &m.InactiveFile, "unevictable": &m.Unevictable,
		"slab_reclaimable": &m.SlabReclaimable, "slab": &m.Slab,
	} {
		var ok bool
		if *to, ok = tallyIn(stat, prefix+name); !ok {
			*to = -1
		}
	}
	return m
}
