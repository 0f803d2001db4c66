package files

import (
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

// maxNameLength and maxMIMELength are in characters.
const (
	maxNameLength = 255
	maxMIMELength = 255
)

// sniffBytes is how much of a content type detection looks at.
const sniffBytes = 3072

// forbidden cannot be in a name, whatever system it came from.
const forbidden = `<>:"|?*\/`

// CleanName is the name that a file keeps: the last component of what was sent, or, where that is
// empty, "unnamed" with the extension of mimeType. It fails with InvalidArgument for what no file
// system should meet: forbidden characters, control characters, invalid UTF-8, "." and "..", or more than
// 255 characters.
func CleanName(sent, mimeType string) (string, error) {
	name := sent[strings.LastIndexByte(sent, '/')+1:]
	if name == "" {
		return "unnamed" + extension(mimeType), nil
	}
	if why := nameFault(name); why != "" {
		return "", proto.Errorf(proto.InvalidArgument, "upload", "filename", "Invalid filename: %s.", why)
	}
	return name, nil
}

// NameOf is the name under which a file with this path in a container is stored: the last component, with an
// underscore for what CleanName refuses, so that the length and the look stay.
func NameOf(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || strings.ContainsRune(forbidden, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(path.Base(name), "_"))
}

// nameFault says what is wrong with a name, if anything.
func nameFault(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "it is not UTF-8"
	case utf8.RuneCountInString(name) > maxNameLength:
		return fmt.Sprintf("it is longer than %d characters", maxNameLength)
	case strings.ContainsAny(name, forbidden):
		return "it contains one of the characters " + forbidden
	case strings.ContainsFunc(name, unicode.IsControl):
		return "it contains a control character"
	case name == "." || name == "..":
		return "it names a directory"
	}
	return ""
}

// checkMIMEType lets through what may stand in a header again when the file is downloaded.
func checkMIMEType(t string) error {
	if t == "" {
		return nil
	}
	base, _, err := mime.ParseMediaType(t)
	strange := strings.ContainsFunc(t, func(r rune) bool { return r < ' ' || r > '~' })
	sound := err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)
	if sound && !strange && len(t) <= maxMIMELength && strings.Contains(base, "/") {
		return nil
	}
	return proto.Errorf(proto.InvalidArgument, "upload", "mime_type",
		"The content type of the file must look like text/csv and have at most %d characters.", maxMIMELength)
}

// extension is the usual one of a type, with its dot.
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

// textTypes are those that the content alone cannot tell from plain text. One extension each.
var textTypes = map[string]string{
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".md": "text/markdown", ".py": "text/x-python",
	".js": "text/javascript", ".ts": "text/x-typescript", ".json": "application/json", ".jsonl": "application/x-ndjson",
	".html": "text/html", ".css": "text/css", ".xml": "text/xml", ".yaml": "application/yaml",
	".toml": "application/toml",
	".sql":  "application/sql", ".sh": "application/x-sh", ".r": "text/x-r", ".svg": "image/svg+xml",
}

// detect finds a type from the first bytes, and from the name where these are just text.
func detect(head []byte, name string) string {
	found, _, _ := strings.Cut(mimetype.Detect(head).String(), ";")
	if found == "text/plain" {
		if t, ok := textTypes[strings.ToLower(path.Ext(name))]; ok {
			return t
		}
	}
	return found
}
