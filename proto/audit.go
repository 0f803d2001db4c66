package proto

import "context"

// An AuditEntry is one line of the audit log: who did what to which thing, and how it went.
type AuditEntry struct {
	Seq         int64  `json:"seq"`  // from 1, without gaps
	Prev        string `json:"prev"` // hash of the entry before; 64 zeros in the first
	Time        Time   `json:"time"`
	Act         string `json:"act"`             // "container.create", "exec.end", "file.upload", …
	Outcome     string `json:"outcome"`         // AuditOK, or the code of the error
	Actor       string `json:"actor"`           // the ID of an API key, or one of the actors below
	Owner       string `json:"owner,omitempty"` // whose thing it is
	RequestID   string `json:"request_id,omitempty"`
	ContainerID string `json:"container_id,omitempty"`
	Generation  int64  `json:"generation,omitempty"` // of the container, where the action concerns one
	ExecID      string `json:"exec_id,omitempty"`
	// what else it was done to: a file, a path inside the container, an image, …
	Item   string       `json:"item,omitempty"`
	Note   string       `json:"note,omitempty"`   // for people
	Exec   *AuditExec   `json:"exec,omitempty"`   // of exec.begin and exec.end
	Egress *AuditEgress `json:"egress,omitempty"` // of egress.begin, egress.refuse and egress.end
	Call   *AuditCall   `json:"call,omitempty"`   // of tools.call
	Port   *AuditPort   `json:"port,omitempty"`   // of port.open and port.close
	Hash   string       `json:"hash"`             // SHA-256, in hex, of the line up to this member's comma
}

// An AuditExec is what the audit log tells of a command. Secrets in Command and Produced are replaced.
type AuditExec struct {
	JobID       string    `json:"job_id"`
	User        string    `json:"user"`
	Command     string    `json:"command"`
	PID         int       `json:"pid,omitempty"`    // in the container's numbering; 0 for one without a process
	Reason      EndReason `json:"reason,omitempty"` // this and what follows only of a command that has ended
	ReturnCode  int       `json:"return_code"`
	Seconds     float64   `json:"seconds"`
	CPUSeconds  float64   `json:"cpu_seconds"`
	StdoutBytes int64     `json:"stdout_bytes"`
	StderrBytes int64     `json:"stderr_bytes"`
	Produced    []string  `json:"produced,omitempty"` // paths in the job's directory
	FileIDs     []string  `json:"file_ids,omitempty"`
}

// An AuditPort is a port of a container that a program has begun to listen on, or does not listen on any more.
type AuditPort struct {
	Port    uint16 `json:"port"`
	Address string `json:"address"` // That the program listened on, such as 127.0.0.1 or 0.0.0.0.
	// In the container; left out if unknown, as under gVisor.
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"` // Name of the process; secrets are replaced.
}

// AuditOK is the outcome of what went well.
const AuditOK = "ok"

// Actors that are no API key.
const (
	ActorDaemon    = "daemon"    // the daemon on its own account
	ActorSweeper   = "sweeper"   // its removal of what is idle or over
	ActorReconcile = "reconcile" // its putting in order at start
	ActorUnknown   = "unknown"   // a caller without a valid API key
	ActorContainer = "container" // what runs in the container
	ActorPublic    = "public"    // anyone, at a public port
)

// Actor names who ctx's caller is in the audit log.
func Actor(ctx context.Context) string {
	if c := CallerOf(ctx); c.KeyID != "" {
		return c.KeyID
	}
	return ActorDaemon
}

type requestIDKey struct{}

// WithRequestID says which request what is done with the context belongs to.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestIDOf is what WithRequestID said, or empty.
func RequestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// An AuditHead is the end of the audit log's chain: who notes it elsewhere can tell later that nothing before it was
// changed.
type AuditHead struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}
