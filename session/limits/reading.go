// Package limits finds the limit of a container that made a command end: memory, processes or disk.
//
// In scope: what a runtime reads from outside of a sandbox (Reading), and the reason and message that follow from it.
// Out of scope: how the counters are read (runtime/meter), and which limits a container may have (session/validate).
// Package session and the runtimes use it.
package limits

// A Reading has the counters of a sandbox and its workspace at one moment.
type Reading struct {
	OOMKills    int64 // processes that the kernel killed for memory since the start; -1 unknown
	PIDRefusals int64 // processes and threads that the kernel refused since then; -1 unknown
	Workspace   Space
	Layer       Space // the writable layer: everything that is neither in the workspace nor in memory
	Owner       Space // of all containers and snapshots of the owner; zero if nothing bounds it
	Pool        Space // shared by workspaces and layers
}

// Unknown is the Reading of a sandbox whose counters cannot be read.
var Unknown = Reading{OOMKills: -1, PIDRefusals: -1}

// A Space is a file system with a limit, in bytes. The zero Space means unknown.
type Space struct{ Used, Limit int64 }

// minFree is how much may be free in a space that programs find full. A file system refuses a write that does not fit
// as a whole, and reserves more for a change than the change takes. Measured: a flood of empty files stops with some
// 300 KB left, one of data with 16 KB.
const minFree = 1 << 20

// Full reports whether the space has less than minFree free.
func (s Space) Full() bool { return s.Limit > 0 && s.Limit-s.Used < minFree }
