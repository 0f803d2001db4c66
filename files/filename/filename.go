// Package filename decides the names and media types of stored files. An uploaded file has a name without directories,
// a file from a container may have a relative path. The file store, its API and the publishers of containers' files
// use the package.
package filename

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/proto"

	"github.com/gabriel-vasile/mimetype"
)

// maxName and maxMIMEType are in characters.
const (
	maxName     = 255
	maxMIMEType = 255
)

// SniffBytes is how many bytes of a content Detect reads.
const SniffBytes = 3072

// forbidden are the characters that no name may have, on any system.
const forbidden = `<>:"|?*\/`

// Clean returns the name that a file keeps: the last component of what was sent. If that is empty, it returns
// "unnamed" with the extension of mimeType. It fails with InvalidArgument for names that a file system may not take:
// forbidden characters, control characters, invalid UTF-8, "." and "..", or more than 255 characters.
func Clean(sent, mimeType string) (string, error) {
	name := sent[strings.LastIndexByte(sent, '/')+1:]
	if name == "" {
		return "unnamed" + extension(mimeType), nil
	}
	if why := nameFault(name); why != "" {
		return "", proto.Errorf(proto.InvalidArgument, "upload", "filename", "Invalid filename: %s.", why)
	}
	return name, nil
}

// FromPath returns the name under which a container's file with this path is stored: the last component, with an
// underscore for each character that Clean refuses. Length and appearance stay.
func FromPath(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || strings.ContainsRune(forbidden, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(path.Base(name), "_"))
}

// maxPath is the maximum of CheckPath, in characters.
const maxPath = 1024

// CheckPath accepts the name of a file that keeps directories, such as "charts/a.png": at most 1024 characters, and
// components that Clean accepts, separated by single slashes.
func CheckPath(name string) error {
	why := ""
	if utf8.RuneCountInString(name) > maxPath {
		why = fmt.Sprintf("it is longer than %d characters", maxPath)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" && why == "" {
			why = "it has an empty part"
		}
		why = cmp.Or(why, nameFault(part))
	}
	if why != "" {
		return proto.Errorf(proto.InvalidArgument, "upload", "filename", "Invalid filename: %s.", why)
	}
	return nil
}

// FromTree returns the name under which a container's file is stored with its directories. It is FromPath for each
// component of a clean relative path.
func FromTree(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = FromPath(part)
	}
	return strings.Join(parts, "/")
}

// nameFault returns what is wrong with a name, or "".
func nameFault(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "it is not UTF-8"
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Sprintf("it is longer than %d characters", maxName)
	case strings.ContainsAny(name, forbidden):
		return "it contains one of the characters " + forbidden
	case strings.ContainsFunc(name, unicode.IsControl):
		return "it contains a control character"
	case name == "." || name == "..":
		return "it names a directory"
	}
	return ""
}

// CheckMIMEType accepts only what can be sent in a header when the file is downloaded.
func CheckMIMEType(t string) error {
	if t == "" {
		return nil
	}
	base, _, err := mime.ParseMediaType(t)
	strange := strings.ContainsFunc(t, func(r rune) bool { return r < ' ' || r > '~' })
	sound := err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)
	if sound && !strange && len(t) <= maxMIMEType && strings.Contains(base, "/") {
		return nil
	}
	return proto.Errorf(proto.InvalidArgument, "upload", "mime_type",
		"The content type of the file must look like text/csv and have at most %d characters.", maxMIMEType)
}

// extension returns the usual extension of a type, with its dot.
func extension(mimeType string) string {
	base, _, _ := strings.Cut(mimeType, ";")
	for ext, t := range textTypes {
		if t == base {
			return ext
		}
	}
	if m := mimetype.Lookup(base); m != nil && m.Extension() != "" {
		return m.Extension()
	}
	return ".bin"
}

// textTypes are types that cannot be distinguished from plain text by their content. Each has one extension.
var textTypes = map[string]string{
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".md": "text/markdown", ".py": "text/x-python",
	".js": "text/javascript", ".ts": "text/x-typescript", ".json": "application/json", ".jsonl": "application/x-ndjson",
	".html": "text/html", ".css": "text/css", ".xml": "text/xml", ".yaml": "application/yaml",
	".toml": "application/toml",
	".sql":  "application/sql", ".sh": "application/x-sh", ".r": "text/x-r", ".svg": "image/svg+xml",
}

// Detect returns a type from the first bytes. If these are text, it uses the name too.
func Detect(head []byte, name string) string {
	found, _, _ := strings.Cut(mimetype.Detect(head).String(), ";")
	if found == "text/plain" {
		if t, ok := textTypes[strings.ToLower(path.Ext(name))]; ok {
			return t
		}
	}
	return found
}
