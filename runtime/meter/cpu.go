package meter

import (
	"path/filepath"

	"berth/runtime/cgroup"
)

// CPUSeconds returns the CPU time that the processes of a sandbox have used, those that have ended included; -1 if the
// kernel does not tell.
func CPUSeconds(sandbox string) float64 { return cpuSecondsIn(cgroup.Dir(sandbox, "cpuacct")) }

// cpuSecondsIn reads the CPU time of the cgroup dir. v1 counts in nanoseconds, and v2 in microseconds.
func cpuSecondsIn(dir string, v2 bool) float64 {
	if v2 {
		p := openPage(filepath.Join(dir, "cpu.stat"))
		defer p.close()
		if n, ok := tallyIn(p.read(), "usage_usec"); ok {
			return float64(n) / 1e6
		}
		return -1
	}
	p := openPage(filepath.Join(dir, "cpuacct.usage"))
	defer p.close()
	if n, ok := p.number(); ok {
		return float64(n) / 1e9
	}
	return -1
}
