package proto

// A ContainerRef names the container in which something ran.
type ContainerRef struct {
	ID        string `json:"id"`
	ExpiresAt Time   `json:"expires_at"` // When the container's lease ends if it is not used.
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

// A LeaseMode says what moves the end of a lease.
type LeaseMode string

// The modes.
const (
	LeaseRolling  LeaseMode = "rolling"  // each use moves it: it ends after idle_timeout_seconds without use
	LeaseAbsolute LeaseMode = "absolute" // only a change moves it
)

// A LeaseAction is what happens to a container at the end of its lease.
type LeaseAction string

// The actions.
const (
	LeaseStop   LeaseAction = "stop"   // its processes end and its files stay; the next use starts it
	LeasePause  LeaseAction = "pause"  // its processes freeze; the next use resumes it
	LeaseRemove LeaseAction = "remove" // it is removed with its files, and its ID answers expired
)

// A LeaseRequest asks for a lease, or for a change of one. What is left out stays as it is; a new container's lease is
// rolling and stops it.
type LeaseRequest struct {
	// What moves its end: uses (rolling), or only a change (absolute). Running commands do not keep a container whose
	// absolute lease ends. One that becomes absolute without an end ends after the idle timeout.
	Mode LeaseMode `json:"mode,omitempty" schema:"enum=|rolling|absolute"`
	// What happens at its end: stop, pause or remove. Files are removed with the container.
	AtEnd LeaseAction `json:"at_end,omitempty" schema:"enum=|stop|pause|remove"`
	// When it ends, not later than max_expires_at. Of a rolling lease, a later use moves it. May be earlier than
	// before. Excludes ends_in_seconds.
	EndsAt *Time `json:"ends_at,omitempty"`
	// When it ends, in seconds from now. 0 ends it now, which a new container cannot ask for.
	EndsInSeconds *int64 `json:"ends_in_seconds,omitempty" schema:"min=0 max=31536000"`
}

// A Lease says how long a container lives, and what happens when that is over.
type Lease struct {
	Mode   LeaseMode   `json:"mode"`
	AtEnd  LeaseAction `json:"at_end"`
	EndsAt Time        `json:"ends_at"` // The same as expires_at.
}

// A NextAction is what happens to a container by itself if nobody uses it.
type NextAction struct {
	Action LeaseAction `json:"action"`
	At     Time        `json:"at"`
}

// A CreateContainer asks for a container. Every field may be left out.
type CreateContainer struct {
	// Name from the list of images; default "base".
	Image string `json:"image,omitempty"`
	// ID or name of a snapshot: the container begins with its files, image, limits and runtime class. Limits and a
	// class in the request win. Excludes image and workspace_id. An ID of a snapshot may also stand in image.
	Snapshot string `json:"snapshot,omitempty"`
	// Isolation: runc or gvisor. The daemon never replaces one by the other. Default: the daemon's, usually "runc".
	RuntimeClass RuntimeClass `json:"runtime_class,omitempty" schema:"runtimeClass"`
	// Let set-user-ID programs gain privileges, so that sudo makes the user root of this container. It has no more
	// rights outside. For class runc; the daemon may forbid it. Such a container is never taken out of the warm pool.
	Sudo bool `json:"sudo,omitempty"`
	// Kept workspace that no live container uses; without it a new one is created.
	WorkspaceID string `json:"workspace_id,omitempty"`
	// Name among the containers of its owner, usable wherever the ID is, and the host name inside: 1 to 63 letters,
	// digits, "_", "." and "-", the first a letter or digit. No two containers of an owner have the same name; a taken
	// one is refused with already_exists. Expiry and deletion free it.
	Name string `json:"name,omitempty" schema:"pattern=^([0-9A-Za-z][0-9A-Za-z_.-]{0,62})?$"`
	// Return the live container of that name if there is one, running; else create it. Of several requests at a time,
	// one creates it and all get it. What differs from the request stays as it is and is listed in the answer, in
	// differences. Needs name; excludes idempotency_key.
	Existing bool `json:"existing,omitempty"`
	// At most 64, to list containers by.
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`
	Env    map[string]string `json:"env,omitempty" schema:"env"` // Environment of every command.
	// More environment, with values of at least 4 bytes. The values are sealed on disk, replaced in records of
	// commands and never returned.
	Secrets map[string]string `json:"secrets,omitempty" schema:"secrets"`
	Files   []string          `json:"files,omitempty"` // IDs of stored files to put into $INPUT_DIR.
	Limits  Limits            `json:"limits,omitzero"`
	// What the container may reach; default nothing. A mode may stand in place of the object.
	Network Network `json:"network,omitzero" schema:"network or=networkMode"`
	// Ports that anyone may send requests to, without a credential; default none. The daemon must allow it.
	PublicPorts PublicPorts `json:"public_ports,omitzero"`
	// Tools of the host that its code may call; default none.
	CodeTools CodeTools `json:"code_tools,omitzero"`

	// More environment, where commands see placeholders. The proxy puts the values into requests, so a network is
	// required.
	NetworkSecrets map[string]NetworkSecret `json:"network_secrets,omitempty"`

	// Creates at most one container: the same key with the same request returns the same container for as long as it
	// exists. 1 to 255 printable ASCII characters.
	IdempotencyKey string `json:"idempotency_key,omitempty" schema:"retryKey"`

	// Fleeting is for a container that no caller knows: it ends with the daemon, however that ends. No request can
	// set it.
	Fleeting bool `json:"-"`

	// Stop after this long without use, 1 second to 30 days; default 300. The next use starts it again with its
	// files. What lease says may happen instead.
	IdleTimeoutSeconds int64 `json:"idle_timeout_seconds,omitempty" schema:"min=0 max=2592000"`
	// Remove this long after creation, 1 second to 365 days; default 30 days.
	MaxLifetimeSeconds int64 `json:"max_lifetime_seconds,omitempty" schema:"min=0 max=31536000"`
	// How it ends; default a rolling lease that stops it.
	Lease LeaseRequest `json:"lease,omitzero"`
}

// A Container describes a container.
type Container struct {
	ID           string            `json:"id"`
	Name         string            `json:"name,omitempty"` // Left out where it has none.
	State        State             `json:"state"`
	Image        string            `json:"image"`
	ImageDigest  string            `json:"image_digest"`
	RuntimeClass RuntimeClass      `json:"runtime_class"`
	Sudo         bool              `json:"sudo,omitempty"` // Its user may become its root by sudo.
	WorkspaceID  string            `json:"workspace_id"`
	Labels       map[string]string `json:"labels"`
	Limits       Limits            `json:"limits"`
	Network      Network           `json:"network"`
	PublicPorts  PublicPorts       `json:"public_ports,omitzero"` // Left out where there are none.
	// Without its secrets; left out where there are none.
	CodeTools  *CodeTools `json:"code_tools,omitempty"`
	Isolation  Isolation  `json:"isolation"`  // As of the last start.
	Generation int64      `json:"generation"` // Counts the starts.
	CreatedAt  Time       `json:"created_at"`
	LastUsedAt Time       `json:"last_used_at"`
	// When its lease ends if it is not used, never past max_expires_at. Each use of a rolling lease moves it.
	ExpiresAt    Time  `json:"expires_at"`
	MaxExpiresAt Time  `json:"max_expires_at"` // When it is removed with its files.
	Lease        Lease `json:"lease"`
	// What happens to it next without another use. Left out of an expired one.
	Next         *NextAction `json:"next,omitempty"`
	RunningExecs int         `json:"running_execs"`
	// Names of its secrets. Their values are never returned.
	SecretNames []string `json:"secret_names"`

	NetworkSecrets map[string]NetworkSecret `json:"network_secrets,omitempty"` // Without the values.

	IdleTimeoutSeconds int64 `json:"idle_timeout_seconds"`
	MaxLifetimeSeconds int64 `json:"max_lifetime_seconds"`

	// In the answer to a create with existing: the container was there before.
	Existing bool `json:"existing,omitempty"`
	// What that container has and the request asked for otherwise, by field. Left out where nothing differs.
	Differences []Difference `json:"differences,omitempty"`
}

// A Difference is a field of a request for an existing container that the container does not meet.
type Difference struct {
	Field string `json:"field"` // Such as image, limits.cpus or labels.team.
	Have  string `json:"have"`  // What the container has, for people. Never a value of env or secrets.
	Asked string `json:"asked"` // What the request asked for.
}

// A ChangeContainer changes a live container. Fields that are left out stay as they are.
type ChangeContainer struct {
	// New name, and host name inside; "" takes the name away. A container of the class gvisor has the new host name
	// from its next start on.
	Name *string `json:"name,omitempty" schema:"pattern=^([0-9A-Za-z][0-9A-Za-z_.-]{0,62})?$"`
	// All labels of the container from now on: those that are not named go.
	Labels map[string]string `json:"labels,omitempty"`
	// Limits that are 0 stay as they are. Those of CPU, memory, disk, and under runc of processes, hold at once; open
	// files, and processes under gVisor, from the next start on. A limit below the present use is a 409.
	Limits Limits `json:"limits,omitzero"`
	// What the container may reach from now on, in place of all that it might. Connections that are not allowed any
	// more end. A mode may stand in place of the object.
	Network Network `json:"network,omitzero" schema:"network or=networkMode"`
	// All ports that are public from now on; {} makes all private, and ends the connections of strangers.
	PublicPorts *PublicPorts `json:"public_ports,omitempty"`
	// How long the container may stay unused from now on, in seconds; 0 stays as it is.
	IdleTimeoutSeconds int64 `json:"idle_timeout_seconds,omitempty" schema:"min=0 max=2592000"`
	// All that is given changes together, with the rest of the request, or nothing does.
	Lease LeaseRequest `json:"lease,omitzero"`
}

// A Workspace is a directory tree that outlives containers.
type Workspace struct {
	ID          string `json:"id"`
	CreatedAt   Time   `json:"created_at"`
	ContainerID string `json:"container_id"` // The container that uses it; empty for none.
	Kept        bool   `json:"kept"`         // It stays when its container goes.
}

// A JobSummary is one line of a list of jobs.
type JobSummary struct {
	JobID     string `json:"job_id"`
	CreatedAt Time   `json:"created_at"`
	UpdatedAt Time   `json:"updated_at"`
	Files     int    `json:"files"`
	Bytes     int64  `json:"size_bytes"`
}
