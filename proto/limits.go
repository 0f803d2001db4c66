package proto

// A RuntimeClass is the kind of isolation a sandbox has. It is chosen per
// container, reported back, and never silently replaced by another.
type RuntimeClass string

// The classes.
const (
	ClassRunc   RuntimeClass = "runc"   // Linux namespaces, cgroups and seccomp on the host's kernel
	ClassGVisor RuntimeClass = "gvisor" // a user-space kernel between the code and the host's
)

// RuntimeClasses are all classes. The first is the default.
var RuntimeClasses = []RuntimeClass{ClassRunc, ClassGVisor}

// Limits bound what one container may use. In Go, 0 is the default of the daemon, which is also the maximum. A request
// leaves a limit out for it.
type Limits struct {
	CPUs float64 `json:"cpus,omitempty" schema:"cpus"` // Cores, at least 0.01.
	// At least 16 MiB; there is no swap.
	MemoryBytes int64 `json:"memory_bytes,omitempty" schema:"memory"`
	PIDs        int64 `json:"pids,omitempty" schema:"pids"` // Processes and threads, at least 16.
	// Size of the workspace, and again of the writable layer, metadata included; at least 16 MiB.
	DiskBytes int64 `json:"disk_bytes,omitempty" schema:"disk"`
	OpenFiles int64 `json:"open_files,omitempty" schema:"openFiles"` // Per process, at least 256.
}

// NoLimit stands for a 0 that a request asks for. No container can have that limit, so it is refused as others are that
// are out of bounds.
const NoLimit = -1

// ReadLimits reads the limits of a request. decode fills the struct that v points to from JSON. A limit of 0 becomes
// NoLimit, so that it is not taken for one that was left out.
func ReadLimits(decode func(v any) error) (l Limits, err error) {
	var asked struct {
		CPUs        *float64 `json:"cpus"`
		MemoryBytes *int64   `json:"memory_bytes"`
		PIDs        *int64   `json:"pids"`
		DiskBytes   *int64   `json:"disk_bytes"`
		OpenFiles   *int64   `json:"open_files"`
	}
	err = decode(&asked)
	return Limits{CPUs: askedLimit(asked.CPUs), MemoryBytes: askedLimit(asked.MemoryBytes),
		PIDs: askedLimit(asked.PIDs), DiskBytes: askedLimit(asked.DiskBytes),
		OpenFiles: askedLimit(asked.OpenFiles)}, err
}

// askedLimit returns a limit as requests have it; nil is one that was left out.
func askedLimit[T int64 | float64](n *T) T {
	switch {
	case n == nil:
		return 0
	case *n == 0:
		return NoLimit
	}
	return *n
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

// A Confinement says how a container that is made is confined: how strongly it is isolated, and what it may use.
type Confinement struct {
	// Isolation of the container that is made: runc or gvisor. The daemon never replaces one by the other. Default: the
	// daemon's.
	RuntimeClass RuntimeClass `json:"runtime_class,omitempty" schema:"runtimeClass"`
	// Limits of the container that is made.
	Limits Limits `json:"limits,omitzero"`
}

// IsZero reports whether nothing is asked for.
func (c Confinement) IsZero() bool { return c == Confinement{} }

// Or fills what c leaves out from d.
func (c Confinement) Or(d Confinement) Confinement {
	if c.RuntimeClass == "" {
		c.RuntimeClass = d.RuntimeClass
	}
	c.Limits = c.Limits.Or(d.Limits)
	return c
}

// WithContainer refuses a confinement in a request that names a container, which has its own.
func (c Confinement) WithContainer() error {
	switch {
	case c.RuntimeClass != "":
		return Invalid("runtime_class", "runtime_class is for a new container; leave it out where container names one")
	case c.Limits != Limits{}:
		return Invalid("limits", "limits are for a new container; leave them out where container names one")
	}
	return nil
}
