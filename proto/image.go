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
	// What the image says of itself as a template; only the daemon reads it.
	Template ImageTemplate `json:"-"`
}

// TemplateLabel is the label of an image that was built as a template. Package api/e2b/templates reads and writes it.
const TemplateLabel = "berth.template"

// An ImageTemplate is what an image with TemplateLabel says of itself. It is zero for other images.
type ImageTemplate struct {
	Facts     string // the label
	User, Dir string // of the image's configuration: where its processes begin
}

// An ImageProgress is one step of a pull or an import, for a progress bar.
type ImageProgress struct {
	Stage string `json:"stage"`           // "resolving", "fetching", "importing", "unpacking", "done"
	Item  string `json:"item,omitempty"`  // shortened digest of a layer; while resolving, the image's name
	Done  int64  `json:"done"`            // bytes
	Total int64  `json:"total,omitempty"` // bytes; 0 if unknown
}
