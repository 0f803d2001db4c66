package proto

// KeyPrefix begins the public ID of an API key, which names it in lists and logs and gives nothing away.
const KeyPrefix = "key_"

// MaxKeyName is how long the name of an API key is at most, in bytes.
const MaxKeyName = 128

// A Quota bounds what may be done with an API key. A field that is 0 or left out does not bound.
type Quota struct {
	// Containers at once that it made and that have not expired.
	Sessions int64 `json:"sessions,omitempty" schema:"min=0 max=1000000"`
	// CPU time of the commands it started, from midnight UTC; counted when a command ends.
	CPUSecondsPerDay float64 `json:"cpu_seconds_per_day,omitempty" schema:"orZero=0.001:"`
	// Size of all stored files that it made.
	StorageBytes int64 `json:"storage_bytes,omitempty" schema:"min=0"`
	// On average.
	RequestsPerSecond float64 `json:"requests_per_second,omitempty" schema:"orZero=0.001:1000000"`
	// Requests at once after a pause; 0 is one second's worth, at least 1.
	Burst int64 `json:"burst,omitempty" schema:"min=0 max=1000000"`
}

// A QuotaChange changes the bounds that it has; 0 removes one.
type QuotaChange struct {
	Sessions          *int64   `json:"sessions,omitempty" schema:"min=0 max=1000000"`
	CPUSecondsPerDay  *float64 `json:"cpu_seconds_per_day,omitempty" schema:"orZero=0.001:"`
	StorageBytes      *int64   `json:"storage_bytes,omitempty" schema:"min=0"`
	RequestsPerSecond *float64 `json:"requests_per_second,omitempty" schema:"orZero=0.001:1000000"`
	Burst             *int64   `json:"burst,omitempty" schema:"min=0 max=1000000"`
}

// On is q with the changes made.
func (c QuotaChange) On(q Quota) Quota {
	put(&q.Sessions, c.Sessions)
	put(&q.CPUSecondsPerDay, c.CPUSecondsPerDay)
	put(&q.StorageBytes, c.StorageBytes)
	put(&q.RequestsPerSecond, c.RequestsPerSecond)
	put(&q.Burst, c.Burst)
	return q
}

func put[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// A Key describes an API key. Its secret is not stored.
type Key struct {
	ID   string `json:"id"` // Names the key; it is no secret.
	Name string `json:"name"`
	// The tenant that owns everything made with it.
	Owner string `json:"owner"`
	// May make and revoke keys, and change what concerns the whole daemon, such as images.
	Admin bool `json:"admin"`
	// The key in the daemon's key file, which is revoked by replacing that file.
	File      bool  `json:"file"`
	Quota     Quota `json:"quota"`
	CreatedAt Time  `json:"created_at"`
	ExpiresAt *Time `json:"expires_at"` // null: never.
	// null: never. After a crash of the daemon it may be some seconds behind.
	LastUsedAt *Time `json:"last_used_at"`
	RevokedAt  *Time `json:"revoked_at"` // null: it is not revoked.
}

// A KeyUsage is what a key uses of its quota.
type KeyUsage struct {
	Sessions        int64   `json:"sessions"`
	CPUSecondsToday float64 `json:"cpu_seconds_today"`
	CPUResetsAt     Time    `json:"cpu_resets_at"` // The next midnight UTC.
	StorageBytes    int64   `json:"storage_bytes"`
	// Bytes on disk of all containers and snapshots of the owner; what they share counts once. Left out where the disk
	// does not count that, as before Linux 6.12.
	OwnerDiskBytes *int64 `json:"owner_disk_bytes,omitempty"`
	// What they may have together. Left out where there is no bound.
	OwnerDiskLimit int64 `json:"owner_disk_limit_bytes,omitempty"`
}

// A CreateKey asks for an API key.
type CreateKey struct {
	// For people, at most 128 bytes; need not be unique.
	Name string `json:"name,omitempty" schema:"maxLength=128 printable"`
	// 1 to 64 letters, digits, '.', '-' and '_'; default the owner of the key that asks.
	Owner string `json:"owner,omitempty" schema:"pattern=^([0-9A-Za-z][0-9A-Za-z._-]{0,63})?$"`
	Admin bool   `json:"admin,omitempty"`
	// 0 is never.
	ExpiresInSeconds int64 `json:"expires_in_seconds,omitempty" schema:"min=0 max=315360000"`
	Quota            Quota `json:"quota,omitzero"`
}

// A ChangeKey changes the fields that it has.
type ChangeKey struct {
	Name  *string      `json:"name,omitempty" schema:"maxLength=128 printable"`
	Quota *QuotaChange `json:"quota,omitempty"`
}

// A NewKey is a key that was just made, with its secret.
type NewKey struct {
	Key
	// What requests carry. Only this answer has it.
	Secret string `json:"secret"`
}

// A KeyStatus is a key and what it uses.
type KeyStatus struct {
	Key
	Usage KeyUsage `json:"usage"`
}
