package proto

// A FeedType says what a FeedEvent tells.
type FeedType string

// The events of GET /v1/events and of webhooks. More types may come; a client ignores those that it does not know.
const (
	FeedContainerCreated FeedType = "container.created"
	FeedContainerStarted FeedType = "container.started" // as the generation in Generation
	FeedContainerStopped FeedType = "container.stopped" // Note says why
	FeedContainerPaused  FeedType = "container.paused"
	FeedContainerResumed FeedType = "container.resumed"
	FeedContainerChanged FeedType = "container.changed" // its lease, labels or limits
	FeedContainerExpired FeedType = "container.expired"
	FeedContainerDeleted FeedType = "container.deleted"
	// its files outside the workspace are those of the image again
	FeedContainerReset    FeedType = "container.reset"
	FeedContainerRestored FeedType = "container.restored" // from the snapshot in Item
	FeedContainerForked   FeedType = "container.forked"   // ContainerID is the copy, and Item what it is a copy of
	FeedSnapshotCreated   FeedType = "snapshot.created"   // Item is the snapshot, and ContainerID what it was taken of
	FeedSnapshotDeleted   FeedType = "snapshot.deleted"   // as in snapshot.created
	FeedExecStarted       FeedType = "exec.started"       // Exec is set
	FeedExecEnded         FeedType = "exec.ended"         // Exec is set, with the reason
	FeedFilesChanged      FeedType = "files.changed"
	FeedFileStored        FeedType = "file.stored"
	FeedFileDeleted       FeedType = "file.deleted"
	FeedApprovalParked    FeedType = "approval.parked"
	FeedApprovalDecided   FeedType = "approval.decided"
	FeedToolCallEnded     FeedType = "tool_call.ended" // ToolCall is set
	// a program has begun to listen on a port, or does not listen any more; Port is set
	FeedPortOpened FeedType = "port.opened"
	FeedPortClosed FeedType = "port.closed"
	// events are missing here, and Note says why; see GET /v1/events
	FeedGap FeedType = "gap"
	// a webhook endpoint was disabled, since its receiver failed for too long
	FeedWebhookDisabled FeedType = "webhook.disabled"
)

// FeedTypes are all types, in the order of the list above.
var FeedTypes = []FeedType{FeedContainerCreated, FeedContainerStarted, FeedContainerStopped, FeedContainerPaused,
	FeedContainerResumed, FeedContainerChanged, FeedContainerExpired, FeedContainerDeleted, FeedContainerReset,
	FeedContainerRestored, FeedContainerForked, FeedSnapshotCreated, FeedSnapshotDeleted, FeedExecStarted,
	FeedExecEnded, FeedFilesChanged, FeedFileStored, FeedFileDeleted, FeedApprovalParked, FeedApprovalDecided,
	FeedToolCallEnded, FeedPortOpened, FeedPortClosed, FeedGap, FeedWebhookDisabled}

// A FeedEvent is something that happened to a container, or to another thing of its owner.
type FeedEvent struct {
	// Place of the event in the order of all events; empty in a gap without one. Send it as after or Last-Event-ID to
	// continue behind this event.
	ID          string   `json:"id"`
	Type        FeedType `json:"type"`
	Timestamp   Time     `json:"timestamp"`
	Owner       string   `json:"owner"`
	ContainerID string   `json:"container_id,omitempty"`
	// The generation of the container; left out if it has none.
	Generation int64  `json:"generation,omitempty"`
	ExecID     string `json:"exec_id,omitempty"`
	// The ID of the API key that caused it, or the part of the daemon that did.
	Actor     string `json:"actor,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// What it happened to, if that is no container and no command: a file, a path, a call, a run, a
	// snapshot, an address with a port. Of container.forked, the container that it is a copy of.
	Item string    `json:"item,omitempty"`
	Note string    `json:"note,omitempty"` // For people.
	Exec *FeedExec `json:"exec,omitempty"` // Of exec.started and exec.ended.
	// Of files.changed: paths in the job's directory, or inside the container if they are absolute.
	Paths []string `json:"paths,omitempty"`
	// Of files.changed: the job in whose directory the paths are.
	JobID string `json:"job_id,omitempty"`
	// Of file.stored and file.deleted.
	FileIDs []string `json:"file_ids,omitempty"`
	// Of approval.decided: approve or refuse.
	Decision string     `json:"decision,omitempty"`
	ToolCall *AuditCall `json:"tool_call,omitempty"` // Of tool_call.ended.
	Port     *AuditPort `json:"port,omitempty"`      // Of port.opened and port.closed.
}

// A FeedExec is what an event tells of a command.
type FeedExec struct {
	JobID   string `json:"job_id"`
	User    string `json:"user"`
	Command string `json:"command"` // Cut after 16 KiB; secrets are replaced.
	// Process ID in the container's own numbering; of the shell, if it ran in one. Left out for one without a process.
	PID int `json:"pid,omitempty"`
	// This and what follows only of a command that has ended.
	Reason      EndReason `json:"reason,omitempty"`
	ReturnCode  *int      `json:"return_code,omitempty"`
	Seconds     float64   `json:"seconds,omitempty"`
	CPUSeconds  float64   `json:"cpu_seconds,omitempty"`
	StdoutBytes int64     `json:"stdout_bytes,omitempty"`
	StderrBytes int64     `json:"stderr_bytes,omitempty"`
}
