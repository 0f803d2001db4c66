package templates

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"

	"berth/proto"
)

// Facts are what an image remembers of its template, as the label proto.TemplateLabel. An image that was built on a
// template without this package has those of that template.
type Facts struct {
	Owner       string  `json:"owner,omitempty"` // a fingerprint of who may replace it
	Build       string  `json:"build,omitempty"`
	Start       string  `json:"start,omitempty"` // commands of each new sandbox
	Ready       string  `json:"ready,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"` // 0: as the daemon has it
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
}

// FactsOf returns what an image remembers. It is zero for other images than templates.
func FactsOf(img proto.Image) (f Facts) {
	if img.Template.Facts == "" || json.Unmarshal([]byte(img.Template.Facts), &f) != nil {
		return Facts{}
	}
	return f
}

// Begin returns the user and the directory of processes in a sandbox that say nothing, or "" where they are the usual
// ones.
func Begin(img proto.Image) (user, dir string) {
	if img.Template.Facts == "" {
		return "", ""
	}
	return cmp.Or(img.Template.User, "root"), img.Template.Dir
}

func (f Facts) label() string {
	text, _ := json.Marshal(f) // plain values
	return string(text)
}

// fingerprint stands for an owner in an image, which may be pushed to others.
func fingerprint(owner string) string {
	sum := sha256.Sum256([]byte("berth template owner\x00" + owner))
	return hex.EncodeToString(sum[:12])
}

// BuildID returns the ID of the build of an image, as clients want it: a UUID.
func BuildID(img proto.Image) string {
	if id := FactsOf(img).Build; id != "" {
		return id
	}
	d := strings.TrimPrefix(img.Digest, "sha256:")
	if len(d) < 32 {
		return "00000000-0000-0000-0000-000000000000"
	}
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:32]
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
