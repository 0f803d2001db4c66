package limits

// A Usage is what a sandbox and its workspace use at one moment. A number that is unknown is -1.
type Usage struct {
	CPUSeconds       float64 // of all processes since the start, those that have ended included
	ThrottledSeconds float64 // time for which its processes had to wait because of the CPU limit
	MemoryBytes      int64   // without the file cache that the kernel can drop at once
	CacheBytes       int64   // file cache
	Tasks            int64   // processes and threads on the host; under gVisor not those of the container
	Workspace, Layer Space
}

// UnknownUsage is the Usage of a sandbox that cannot be read.
var UnknownUsage = Usage{CPUSeconds: -1, ThrottledSeconds: -1, MemoryBytes: -1, CacheBytes: -1, Tasks: -1}
