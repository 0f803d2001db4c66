package proto

// FileType is what a directory entry is.
type FileType string

// The types.
const (
	TypeFile      FileType = "file"
	TypeDirectory FileType = "directory"
	TypeSymlink   FileType = "symlink"
	TypeOther     FileType = "other" // FIFO, socket or device: listed, never opened
)

// A FileInfo describes one file inside a container. It never follows a link at the end of the path.
type FileInfo struct {
	// Absolute; bytes that are not UTF-8 show as U+FFFD.
	Path      string   `json:"path"`
	RawPath   []byte   `json:"path_base64,omitempty"` // The true path, where it is not UTF-8.
	Type      FileType `json:"type"`
	SizeBytes int64    `json:"size_bytes"`
	// Octal permission bits with set-id and sticky, such as 0644.
	Mode       string `json:"mode"`
	UID        uint32 `json:"uid"`
	GID        uint32 `json:"gid"`
	Owner      string `json:"owner,omitempty"` // Name of the user in the container, where there is one.
	Group      string `json:"group,omitempty"` // Name of the group in the container, where there is one.
	ModifiedAt Time   `json:"modified_at"`
	// Change of the inode, which code in the container cannot set.
	ChangedAt Time   `json:"changed_at"`
	Target    string `json:"target,omitempty"` // Target of a symbolic link.
	// What a symbolic link leads to; left out if there is nothing.
	TargetType FileType `json:"target_type,omitempty"`
	// Extended attributes of the user's space without "user.", as far as they are text, of files and directories.
	Attributes map[string]string `json:"attributes,omitempty"`
	SHA256     string            `json:"sha256,omitempty"` // In hex, where it was asked for.
}

// InPlace says how a file is written without being replaced. What has arrived is written at once, so an upload that
// breaks leaves a part. A body without a length that goes over old bytes is written once all of it is there.
type InPlace struct {
	Offset   int64 `json:"offset,omitempty"`   // where the first byte goes; not with Append
	Append   bool  `json:"append,omitempty"`   // write at the end, as O_APPEND does
	Truncate bool  `json:"truncate,omitempty"` // the file ends behind what is written
	// extended attributes that the file gets before its content; nil changes none
	Attributes *Attributes `json:"attributes,omitempty"`
}

// Attributes are extended attributes of a file in the user's space. They replace all others whose names begin with
// the prefix.
type Attributes struct {
	Prefix string            `json:"prefix"`
	Values map[string]string `json:"values,omitempty"` // by name, without the prefix
}

// What happened to a file. Of a file that was renamed the old name has rename, and the new one create.
type FileEventType string

// The types of a FileEvent.
const (
	FileWatched    FileEventType = "start"    // The watch holds from here on.
	FileCreated    FileEventType = "create"   // It is new at this path, or was renamed to it.
	FileWritten    FileEventType = "write"    // Its content changed.
	FileRemoved    FileEventType = "remove"   // It is gone.
	FileRenamed    FileEventType = "rename"   // It has left this path.
	FileAttributes FileEventType = "chmod"    // Mode, owner, times or extended attributes changed.
	FileOverflow   FileEventType = "overflow" // Events were lost, or new directories are not watched: list again.
)

// A FileEvent is a change in a watched directory.
type FileEvent struct {
	Type FileEventType `json:"type"`
	Path string        `json:"path"` // Absolute; bytes that are not UTF-8 show as U+FFFD.
	// Path relative to the watched directory; empty for that directory.
	Name      string `json:"name,omitempty"`
	Directory bool   `json:"directory,omitempty"` // It is a directory.
	// The file soon after the event, if requested and if it still exists.
	Entry *FileInfo `json:"entry,omitempty"`
}

// A StoredFile is a file with an ID, as the Files API knows it, free of any dialect.
type StoredFile struct {
	ID           string
	Owner        string // the workspace of the API key that owns it
	Filename     string
	MIMEType     string
	SizeBytes    int64
	SHA256       string // hex
	CreatedAt    Time
	ExpiresAt    *Time  // nil: kept until deleted
	Downloadable bool   // made by code, not uploaded
	Scope        string // container that made it; "" for uploads
}

// An Artifact is one line of a job's manifest.
type Artifact struct {
	Path      string   `json:"path"` // Relative to the directory of the job.
	Type      FileType `json:"type"`
	SizeBytes int64    `json:"size_bytes"`
	// In hex; empty where the file was too large or vanished before it could be read.
	SHA256    string `json:"sha256"`
	Mode      string `json:"mode"`
	MediaType string `json:"media_type"`
	// produced by a command, uploaded through the API, or edited by the editor tool.
	Origin     string `json:"origin"`
	CreatedBy  string `json:"created_by,omitempty"` // ID of the exec.
	ChangedBy  string `json:"changed_by,omitempty"` // ID of the exec that made the last change.
	CreatedAt  Time   `json:"created_at"`           // When it was first seen.
	ModifiedAt Time   `json:"modified_at"`
	FileID     string `json:"file_id,omitempty"` // Where it was published to the Files API.
}

// A Manifest lists what a job's directory holds and who made it. /workspace/.berth/<job_id>.json has the same JSON.
type Manifest struct {
	JobID       string     `json:"job_id"`
	WorkspaceID string     `json:"workspace_id"`
	ContainerID string     `json:"container_id"` // The last one that worked on it.
	CreatedAt   Time       `json:"created_at"`
	UpdatedAt   Time       `json:"updated_at"`
	Execs       []JobExec  `json:"execs"`
	Files       []Artifact `json:"files"`
	// The directory holds more than a manifest lists.
	Truncated bool `json:"truncated"`
}

// A JobExec is the log line of one command in a manifest.
type JobExec struct {
	ID         string    `json:"id"`
	Command    string    `json:"command"` // argv joined for commands without bash; secrets redacted, cut at 4 KiB
	StartedAt  Time      `json:"started_at"`
	EndedAt    *Time     `json:"ended_at"`
	Reason     EndReason `json:"reason"`
	ReturnCode int       `json:"return_code"`
	Stderr     string    `json:"stderr"`   // its last 2 KiB
	Produced   []string  `json:"produced"` // paths it created or changed
}
