package proto

import "time"

// OwnImages begins the names that berth's own images have in their archives, so that another program that loads one
// does not take it for an image of a registry. In the daemon they have the rest as their name, such as "base".
const OwnImages = "localhost/berth/"

// An Image is an unpacked root file system that containers can start from.
type Image struct {
	Name      string    `json:"name"`       // as given at import or pull
	Digest    string    `json:"digest"`     // sha256:… of its manifest
	SizeBytes int64     `json:"size_bytes"` // of its compressed layers
	CreatedAt time.Time `json:"created_at"` // when it was imported or pulled
	Platform  string    `json:"platform"`   // linux/amd64
}

// An ImageProgress is one step of a pull or an import, for a progress bar.
type ImageProgress struct {
	Stage string `json:"stage"`           // "resolving", "fetching", "importing", "unpacking", "done"
	Item  string `json:"item,omitempty"`  // shortened digest of a layer; while resolving, the image's name
	Done  int64  `json:"done"`            // bytes
	Total int64  `json:"total,omitempty"` // bytes; 0 if unknown
}
