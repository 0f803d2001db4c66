package images

import (
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"berth/proto"
)

const (
	Namespace   = "berth"     // our containerd namespace
	Snapshotter = "overlayfs" // unpacks images
)

// Images have two kinds of record. A name ("base", "debian:12") is stored in its full form and moves with each
// import. A digest is stored as itself and never moves. Sessions pin digests, so a digest stays until a Sweep whose
// keep lacks it.

// DigestName returns the name of the record that keeps an image by its digest.
func DigestName(digest string) string { return digest }

// isDigestName reports whether an image record's name is a digest.
func isDigestName(name string) bool { return strings.HasPrefix(name, "sha256:") }

// FullName returns ref in its full form, in which names are compared: registry, repository and tag. It completes
// names as container tools do: "base" is "base:latest".
func FullName(op, ref string) (string, error) {
	if isDigestName(ref) {
		if _, err := digest.Parse(ref); err != nil {
			return "", badName(op, ref)
		}
		return ref, nil
	}
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", badName(op, ref)
	}
	return named.String(), nil
}

// ShortName returns a full name without the parts that FullName would add.
func ShortName(full string) string {
	named, err := reference.ParseNormalizedNamed(full)
	if err != nil {
		return full
	}
	return strings.TrimSuffix(reference.FamiliarString(named), ":latest")
}

func badName(op, ref string) error {
	return proto.Errorf(proto.InvalidArgument, op, ref,
		"%.80q is not an image name; write it like base, debian:12 or sha256:<64 hex digits>", ref)
}
