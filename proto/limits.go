package proto

// A RuntimeClass is the kind of isolation a sandbox has. It is chosen per
// container, reported back, and never silently replaced by another.
type RuntimeClass string

// The classes.
const (
	ClassRunc   RuntimeClass = "runc"   // Linux namespaces, cgroups and seccomp on the host's kernel
	ClassGVisor RuntimeClass = "gvisor" // a user-space kernel between the code and the host's
)

// Limits bound what one container may use. 0 is the default of the daemon, which is also the maximum.
type Limits struct {
	CPUs float64 `json:"cpus,omitempty" schema:"cpus"` // Cores, at least 0.01.
	// At least 16 MiB; there is no swap.
	MemoryBytes int64 `json:"memory_bytes,omitempty" schema:"memory"`
	PIDs        int64 `json:"pids,omitempty" schema:"pids"` // Processes and threads, at least 16.
	// Size of the workspace, and again of the writable layer, metadata included; at least 16 MiB.
	DiskBytes int64 `json:"disk_bytes,omitempty" schema:"disk"`
	OpenFiles int64 `json:"open_files,omitempty" schema:"openFiles"` // Per process, at least 256.
}

// Or fills the zero fields of l from d.
func (l Limits) Or(d Limits) Limits {
	if l.CPUs == 0 {
		l.CPUs = d.CPUs
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = d.MemoryBytes
	}
	if l.PIDs == 0 {
		l.PIDs = d.PIDs
	}
	if l.DiskBytes == 0 {
		l.DiskBytes = d.DiskBytes
	}
	if l.OpenFiles == 0 {
		l.OpenFiles = d.OpenFiles
	}
	return l
}
