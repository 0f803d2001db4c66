package proto

// A RuntimeClass is the kind of isolation a sandbox has. It is chosen per
// container, reported back, and never silently replaced by another.
type RuntimeClass string

// The classes.
const (
	ClassRunc   RuntimeClass = "runc"   // Linux namespaces, cgroups and seccomp on the host's kernel
	ClassGVisor RuntimeClass = "gvisor" // a user-space kernel between the code and the host's
)

// Limits bound what one container may use. Zero means the daemon's default.
type Limits struct {
	CPUs        float64 `json:"cpus,omitempty"`         // cores, 0.01 and up; hosted default is 1
	MemoryBytes int64   `json:"memory_bytes,omitempty"` // 16 MiB and up; swap is never added
	PIDs        int64   `json:"pids,omitempty"`         // processes and threads, 16 and up
	// of the workspace, and again of the writable layer, metadata included; 16 MiB and up
	DiskBytes int64 `json:"disk_bytes,omitempty"`
	OpenFiles int64 `json:"open_files,omitempty"` // of one process, 256 and up
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
