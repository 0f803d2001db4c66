package proto

// CreateSnapshot is a request to keep a container's files as they are now.
type CreateSnapshot struct {
	// Name among the snapshots of its owner, usable wherever the ID is; as that of a container.
	Name string `json:"name,omitempty" schema:"pattern=^([0-9A-Za-z][0-9A-Za-z_.-]{0,62})?$"`
	// At most 64, to list snapshots by.
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`
	// Remove it this long after it was taken, 1 second to 365 days; 0: it stays until it is deleted.
	ExpiresAfterSeconds int64 `json:"expires_after_seconds,omitempty" schema:"min=0 max=31536000"`
}

// A Snapshot has all files of a container as of one moment: its workspace, and what it has written elsewhere. It stays
// when the container goes. It has no processes, environment or secrets.
type Snapshot struct {
	ID          string            `json:"id"`
	Name        string            `json:"name,omitempty"` // Left out where it has none.
	Labels      map[string]string `json:"labels"`
	ContainerID string            `json:"container_id"` // The container that it was taken of, which may be gone.
	Image       string            `json:"image"`
	ImageDigest string            `json:"image_digest"`
	// Of the container, and of containers made of the snapshot that ask for nothing else.
	RuntimeClass RuntimeClass `json:"runtime_class"`
	Limits       Limits       `json:"limits"` // Likewise.
	// Bytes of its files, those too that it shares with containers and other snapshots. Left out where the disk counts
	// otherwise: with simple quotas, which are the default from Linux 6.12 on.
	SizeBytes int64 `json:"size_bytes,omitempty"`
	// Bytes of size_bytes that nothing else has: what its removal frees. Left out likewise.
	ExclusiveBytes int64 `json:"exclusive_bytes,omitempty"`
	CreatedAt      Time  `json:"created_at"`
	ExpiresAt      *Time `json:"expires_at,omitempty"` // Left out where it stays until it is deleted.
}

// ForkContainer is a request for copies of a container.
type ForkContainer struct {
	// How many, 1 to 100; 0 is 1.
	Count int `json:"count,omitempty" schema:"min=0 max=100"`
}

// RestoreContainer is a request to give a container the files of a snapshot.
type RestoreContainer struct {
	Snapshot string `json:"snapshot"` // ID or name.
}
