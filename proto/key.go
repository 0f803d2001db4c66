package proto

// KeyPrefix begins the public ID of an API key, which names it in lists and logs and gives nothing away.
const KeyPrefix = "key_"

// A Quota bounds what may be done with one API key. Zero fields do not bound.
type Quota struct {
	Sessions          int64   `json:"sessions,omitempty"`            // containers it made that have not expired, at once
	CPUSecondsPerDay  float64 `json:"cpu_seconds_per_day,omitempty"` // of the commands it started, from midnight UTC
	StorageBytes      int64   `json:"storage_bytes,omitempty"`       // of the stored files it made, all together
	RequestsPerSecond float64 `json:"requests_per_second,omitempty"` // on average
	// requests at once after a pause; 0 is one second's worth, at least 1
	Burst int64 `json:"burst,omitempty"`
}

// A QuotaChange changes the fields that it has; 0 takes a bound away.
type QuotaChange struct {
	Sessions          *int64   `json:"sessions,omitempty"`
	CPUSecondsPerDay  *float64 `json:"cpu_seconds_per_day,omitempty"`
	StorageBytes      *int64   `json:"storage_bytes,omitempty"`
	RequestsPerSecond *float64 `json:"requests_per_second,omitempty"`
	Burst             *int64   `json:"burst,omitempty"`
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

// A Key describes an API key; its secret is known to nobody but who was given it.
type Key struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Owner      string `json:"owner"` // the tenant that everything made with it belongs to
	Admin      bool   `json:"admin"` // may make and revoke keys, and change what concerns the whole daemon
	File       bool   `json:"file"`  // it is the one in the daemon's key file, which is revoked by replacing that
	Quota      Quota  `json:"quota"`
	CreatedAt  Time   `json:"created_at"`
	ExpiresAt  *Time  `json:"expires_at"`   // null: never
	LastUsedAt *Time  `json:"last_used_at"` // null: never; after a crash of the daemon it may be some seconds behind
	RevokedAt  *Time  `json:"revoked_at"`   // null: it is not
}

// A KeyUsage is what a key uses of its quota.
type KeyUsage struct {
	Sessions        int64   `json:"sessions"`
	CPUSecondsToday float64 `json:"cpu_seconds_today"`
	CPUResetsAt     Time    `json:"cpu_resets_at"` // the next midnight UTC
	StorageBytes    int64   `json:"storage_bytes"`
}

// A CreateKey asks for an API key.
type CreateKey struct {
	Name             string `json:"name,omitempty"`  // for people; need not be unique
	Owner            string `json:"owner,omitempty"` // "" is the owner of the key that asks
	Admin            bool   `json:"admin,omitempty"`
	ExpiresInSeconds int64  `json:"expires_in_seconds,omitempty"` // 0: never
	Quota            Quota  `json:"quota,omitzero"`
}

// A ChangeKey changes the fields that it has.
type ChangeKey struct {
	Name  *string      `json:"name,omitempty"`
	Quota *QuotaChange `json:"quota,omitempty"`
}

// A NewKey is a key that was just made, with the secret that is told this once.
type NewKey struct {
	Key
	Secret string `json:"secret"`
}

// A KeyStatus is a key and what it uses.
type KeyStatus struct {
	Key
	Usage KeyUsage `json:"usage"`
}
