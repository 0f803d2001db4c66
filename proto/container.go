package proto

// A ContainerRef is how results name the container they ran in.
type ContainerRef struct {
	ID        string `json:"id"`
	ExpiresAt Time   `json:"expires_at"`
}

// A State is where a session is in its life.
type State string

// The states.
const (
	StateCreating State = "creating" // recorded, its sandbox not yet up
	StateRunning  State = "running"
	StatePaused   State = "paused"  // frozen; the next use resumes it
	StateStopped  State = "stopped" // no processes, files kept; the next use starts it
	StateExpired  State = "expired" // past its cap; only its name is left
)

// A CreateContainer asks for a container. Every field may be left out.
type CreateContainer struct {
	Image        string            `json:"image,omitempty"`         // a name from the image list; default "base"
	RuntimeClass RuntimeClass      `json:"runtime_class,omitempty"` // default "runc"
	WorkspaceID  string            `json:"workspace_id,omitempty"`  // an existing workspace that no live container uses
	Labels       map[string]string `json:"labels,omitempty"`        // at most 64; for listing
	Env          map[string]string `json:"env,omitempty"`           // for every command
	// environment too, of 4 bytes at least; never told again, sealed on disk, hidden in records of commands
	Secrets map[string]string `json:"secrets,omitempty"`
	Files   []string          `json:"files,omitempty"` // stored files to put into $INPUT_DIR
	Limits  Limits            `json:"limits,omitzero"`
	Network Network           `json:"network,omitzero"` // what it may reach; default nothing
	// tools of the host that its code may call; default none
	CodeTools CodeTools `json:"code_tools,omitzero"`

	// environment too, of which commands see placeholders; they need a network
	NetworkSecrets map[string]NetworkSecret `json:"network_secrets,omitempty"`

	// IdempotencyKey makes at most one container: the same key with the same request is the same container for as
	// long as that is there. 1 to 255 printable ASCII characters.
	IdempotencyKey string `json:"idempotency_key,omitempty"`

	// Fleeting is for a container that nobody is told of: it ends with the daemon, however that ends. No request can
	// say it.
	Fleeting bool `json:"-"`

	// stop after this long without use; default 300, 1 to 30 days
	IdleTimeoutSeconds int64 `json:"idle_timeout_seconds,omitempty"`
	// remove this long after creation; default 30 days, 1 s to 365 days
	MaxLifetimeSeconds int64 `json:"max_lifetime_seconds,omitempty"`
}

// A Container describes a session on the wire.
type Container struct {
	ID           string            `json:"id"`
	State        State             `json:"state"`
	Image        string            `json:"image"`
	ImageDigest  string            `json:"image_digest"`
	RuntimeClass RuntimeClass      `json:"runtime_class"`
	WorkspaceID  string            `json:"workspace_id"`
	Labels       map[string]string `json:"labels"`
	Limits       Limits            `json:"limits"`
	Network      Network           `json:"network"`
	CodeTools    *CodeTools        `json:"code_tools,omitempty"` // without what is secret of it
	Isolation    Isolation         `json:"isolation"`            // as of its last start
	Generation   int64             `json:"generation"`           // how many times it was started
	CreatedAt    Time              `json:"created_at"`
	LastUsedAt   Time              `json:"last_used_at"`
	// rolling: when it stops if nobody uses it; never past MaxExpiresAt
	ExpiresAt    Time     `json:"expires_at"`
	MaxExpiresAt Time     `json:"max_expires_at"` // the cap: when it and its files are removed
	RunningExecs int      `json:"running_execs"`
	SecretNames  []string `json:"secret_names"` // of its secrets; their values are never told

	NetworkSecrets map[string]NetworkSecret `json:"network_secrets,omitempty"` // without their values

	IdleTimeoutSeconds int64 `json:"idle_timeout_seconds"`
	MaxLifetimeSeconds int64 `json:"max_lifetime_seconds"`
}

// A Workspace is a directory tree that outlives containers.
type Workspace struct {
	ID          string `json:"id"`
	CreatedAt   Time   `json:"created_at"`
	ContainerID string `json:"container_id"` // the container that uses it; "" for none
	Kept        bool   `json:"kept"`         // it stays when its container is deleted
}

// A JobSummary is one line of a list of jobs.
type JobSummary struct {
	JobID     string `json:"job_id"`
	CreatedAt Time   `json:"created_at"`
	UpdatedAt Time   `json:"updated_at"`
	Files     int    `json:"files"`
	Bytes     int64  `json:"size_bytes"`
}
