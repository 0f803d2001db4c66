package proto

// Stats are what a container uses at one moment. A number that is not known is null.
type Stats struct {
	ContainerID  string       `json:"container_id"`
	Name         string       `json:"name,omitempty"`
	Timestamp    Time         `json:"timestamp"`
	State        State        `json:"state"`
	RuntimeClass RuntimeClass `json:"runtime_class"`
	// Generation that the counters of CPU time belong to.
	Generation int64        `json:"generation"`
	CPU        StatsCPU     `json:"cpu"`
	Memory     StatsMemory  `json:"memory"`
	Disk       StatsDisk    `json:"disk"`
	Network    StatsNetwork `json:"network"`
	// Processes and threads; null under gVisor, whose own threads the host counts instead.
	Processes      *int64 `json:"processes"`
	ProcessesLimit int64  `json:"processes_limit"`
	RunningExecs   int    `json:"running_execs"`
}

// StatsCPU is CPU time.
type StatsCPU struct {
	Seconds *float64 `json:"seconds"` // Since the generation started.
	// Of one core, on average since the sample before: 200 is two cores. Null in the first sample of a generation.
	Percent          *float64 `json:"percent"`
	LimitCPUs        float64  `json:"limit_cpus"`
	ThrottledSeconds *float64 `json:"throttled_seconds"` // For which the limit held processes back.
}

// StatsMemory is memory in bytes.
type StatsMemory struct {
	UsedBytes  *int64 `json:"used_bytes"`  // Without file cache that the kernel can drop at once.
	CacheBytes *int64 `json:"cache_bytes"` // File cache.
	LimitBytes int64  `json:"limit_bytes"`
}

// StatsDisk is disk space in bytes. The limit is for the workspace, and again for the layer.
type StatsDisk struct {
	WorkspaceBytes *int64 `json:"workspace_bytes"`
	LayerBytes     *int64 `json:"layer_bytes"`
	LimitBytes     int64  `json:"limit_bytes"`
}

// StatsNetwork is what the container exchanged with other hosts since the daemon started, in bytes of finished
// requests.
type StatsNetwork struct {
	SentBytes     int64 `json:"sent_bytes"`
	ReceivedBytes int64 `json:"received_bytes"`
}
