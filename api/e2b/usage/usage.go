// Package usage counts what a sandbox uses as E2B's clients know it. api/e2b answers with it for the control plane, and
// api/e2b/envd for the agent.
package usage

import (
	"math"

	"berth/proto"
)

// A Usage is what a sandbox uses at one moment; sizes are in bytes. What is not known is 0.
type Usage struct {
	CPUCount   int64   // cores, rounded up
	CPUPercent float64 // of all cores that it may use
	MemUsed    int64
	MemTotal   int64
	MemCache   int64
	DiskUsed   int64
	DiskTotal  int64
}

// Of returns what measured statistics say.
func Of(s proto.Stats) Usage {
	u := Usage{CPUCount: Cores(s.CPU.LimitCPUs), MemUsed: known(s.Memory.UsedBytes), MemTotal: s.Memory.LimitBytes,
		MemCache: known(s.Memory.CacheBytes), DiskUsed: known(s.Disk.WorkspaceBytes) + known(s.Disk.LayerBytes),
		DiskTotal: s.Disk.LimitBytes}
	if s.CPU.LimitCPUs > 0 {
		u.CPUPercent = known(s.CPU.Percent) / s.CPU.LimitCPUs
	}
	return u
}

// Cores rounds a limit of CPUs up, since clients know whole cores alone.
func Cores(limit float64) int64 { return int64(math.Ceil(limit)) }

func known[N int64 | float64](n *N) N {
	if n == nil {
		return 0
	}
	return *n
}
