package inside

import (
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/meter"
	"berth/session/limits"
)

// Figures are what a sandbox may use and uses. A Space without a limit is unknown.
type Figures struct {
	Memory           meter.Memory
	Layer, Workspace limits.Space
}

// firstFigures are those of a sandbox before it runs.
func firstFigures(l proto.Limits) Figures {
	return Figures{Memory: meter.Memory{Limit: l.MemoryBytes}}
}

// text returns the content of the file at a path.
func (g Figures) text(at string) []byte {
	g.Memory.Limit = min(g.Memory.Limit, machineMemory())
	if at == meminfo {
		return g.meminfo()
	}
	return g.capacity()
}

// machineMemory is the memory of the machine, which a limit may exceed.
var machineMemory = sync.OnceValue(func() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 1 << 62
	}
	return int64(info.Totalram) * int64(info.Unit)
})

// meminfo writes the figures as the kernel writes /proc/meminfo, as far as a cgroup has figures. Programs look for
// lines by name.
func (g Figures) meminfo() []byte {
	m := g.Memory
	free, droppable := max(0, m.Limit-m.Used), max(0, m.InactiveFile)+max(0, m.SlabReclaimable)
	var b strings.Builder
	line := func(name string, bytes int64) { fmt.Fprintf(&b, "%-15s %8d kB\n", name+":", max(0, bytes)>>10) }
	line("MemTotal", m.Limit)
	line("MemFree", free)
	line("MemAvailable", min(m.Limit, free+droppable))
	line("Buffers", 0)
	line("Cached", m.Cache)
	line("SwapCached", 0)
	line("Active", m.ActiveAnon+m.ActiveFile)
	line("Inactive", m.InactiveAnon+m.InactiveFile)
	line("Active(anon)", m.ActiveAnon)
	line("Inactive(anon)", m.InactiveAnon)
	line("Active(file)", m.ActiveFile)
	line("Inactive(file)", m.InactiveFile)
	line("Unevictable", m.Unevictable)
	line("SwapTotal", 0)
	line("SwapFree", 0)
	line("Dirty", m.Dirty)
	line("Writeback", m.Writeback)
	line("AnonPages", m.Anon)
	line("Mapped", m.Mapped)
	line("Shmem", m.Shmem)
	line("KReclaimable", m.SlabReclaimable)
	line("Slab", m.Slab)
	line("SReclaimable", m.SlabReclaimable)
	return []byte(b.String())
}

// capacity writes the figures for the guest: a name, a limit, and what is used of it. A limit of 0 is unknown. Package
// guest/capacity reads them.
func (g Figures) capacity() []byte {
	return fmt.Appendf(nil, "layer %d %d\nworkspace %d %d\n", g.Layer.Limit, g.Layer.Used, g.Workspace.Limit,
		g.Workspace.Used)
}
