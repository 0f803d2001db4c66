package proto

import (
	"archive/tar"
	"path"
	"path/filepath"
	"strings"
)

// An archive of a container's directory cannot hold pipes, sockets and devices. It has a comment in place of each: a
// global header (pax) of this keyword. Its value begins with ArchiveLeftOut and continues with the name. Other programs
// that unpack archives skip comments.
const (
	ArchiveComment = "comment"
	ArchiveLeftOut = "left out: "
	// The value for a file or directory that the user may not read.
	ArchiveUnreadable = "unreadable: "
)

// LeftOutHeader returns the comment for a file that is left out of an archive.
func LeftOutHeader(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeXGlobalHeader,
		PAXRecords: map[string]string{ArchiveComment: ArchiveLeftOut + name}}
}

// UnreadableHeader returns the comment for a file or directory that the user may not read.
func UnreadableHeader(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeXGlobalHeader,
		PAXRecords: map[string]string{ArchiveComment: ArchiveUnreadable + name}}
}

// UnreadableName returns the name in a comment of UnreadableHeader. ok is false for another header.
func UnreadableName(h *tar.Header) (name string, ok bool) {
	if h.Typeflag != tar.TypeXGlobalHeader {
		return "", false
	}
	return strings.CutPrefix(h.PAXRecords[ArchiveComment], ArchiveUnreadable)
}

// LeftOutName returns the name in a comment of LeftOutHeader. ok is false for another header.
func LeftOutName(h *tar.Header) (name string, ok bool) {
	if h.Typeflag != tar.TypeXGlobalHeader {
		return "", false
	}
	return strings.CutPrefix(h.PAXRecords[ArchiveComment], ArchiveLeftOut)
}

// LinkStaysInside reports whether a symbolic link called name in an archive leads to a target inside the unpacked
// directory. The client skips other links, and the guest refuses them. A target with ".." after a directory name is not
// inside: the directory may be a link, so the result is unknown.
func LinkStaysInside(name, target string) bool {
	down := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && down {
			return false
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
}
