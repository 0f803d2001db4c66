// Package content checks the content of a skill: its file SKILL.md, the paths of its files, and their modes.
//
// Package skills calls it for uploads, and tools/skills/provided for the directory of provided skills.
package content

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/proto"

	"go.yaml.in/yaml/v3"
)

// File is the name of the file that makes a directory a skill.
const File = "SKILL.md"

// Limits for SKILL.md. They are the limits of the hosted service.
const (
	maxFront       = 64 << 10 // bytes, within which the front matter must end
	maxName        = 64       // bytes
	maxDescription = 1024     // characters
	maxDisplayName = 255      // characters
)

// A Front is a writer that keeps the beginning of SKILL.md, in which its front matter must end.
type Front []byte

// Write implements io.Writer.
func (f *Front) Write(p []byte) (int, error) {
	*f = append(*f, p[:min(len(p), maxFront-len(*f))]...)
	return len(p), nil
}

// A Manifest is the front matter of SKILL.md.
type Manifest struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
}

var (
	validName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	tag       = regexp.MustCompile(`</?[A-Za-z][^<>]*>`)
)

// ValidName reports whether a skill can have a name.
func ValidName(name string) bool { return validName.MatchString(name) && len(name) <= maxName }

// Parse parses the front matter of SKILL.md. The default name of a skill is the name of its directory.
func Parse(dir string, text []byte) (m Manifest, err error) {
	file := dir + "/" + File
	front, err := frontMatter(text)
	if err != nil {
		return m, Invalid(file, "%s %v.", file, err)
	}
	if err := yaml.Unmarshal(front, &m); err != nil {
		return m, Invalid(file, "The front matter of %s is not YAML: %.300s.", file,
			strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if m.Name == "" {
		m.Name = dir
	}
	m.Description = strings.TrimSpace(m.Description)
	return m, m.check(file)
}

// frontMatter returns the text between the first line, which must be "---", and the next such line.
func frontMatter(text []byte) ([]byte, error) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(text, []byte("---\n"))
	if !ok {
		return nil, errors.New(`must begin with front matter: a line "---", name, description, and a line "---"`)
	}
	for at := 0; at < len(rest); {
		line, _, _ := bytes.Cut(rest[at:], []byte("\n"))
		if string(bytes.TrimRight(line, " \t")) == "---" {
			return rest[:at], nil
		}
		at += len(line) + 1
	}
	return nil, errors.New(`has front matter without an end: a line "---" is missing, within its first 64 KiB`)
}

func (m Manifest) check(file string) error {
	bad := func(format string, args ...any) error {
		return Invalid(file, "In %s, "+format, append([]any{file}, args...)...)
	}
	switch {
	case len(m.Name) > maxName:
		return bad("the name has %d characters; the limit is %d.", len(m.Name), maxName)
	case !validName.MatchString(m.Name):
		return bad("the name %.80q is not valid for a skill: use lower-case letters, digits and single "+
			"hyphens between them.", m.Name)
	case m.Description == "":
		return bad("the description is missing; say what the skill does and when to use it.")
	case utf8.RuneCountInString(m.Description) > maxDescription:
		return bad("the description has %d characters; the limit is %d.", utf8.RuneCountInString(m.Description),
			maxDescription)
	case tag.MatchString(m.Description):
		return bad("the description has the tag %.80q; a description is plain text.", tag.FindString(m.Description))
	}
	return nil
}

// CheckDisplayName refuses a name that is not a single line of text.
func CheckDisplayName(name string) error {
	if n := utf8.RuneCountInString(name); n > maxDisplayName {
		return Invalid("display_name", "The display name has %d characters; the limit is %d.", n, maxDisplayName)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return Invalid("display_name", "The display name must be one line of text.")
	}
	return nil
}

// Limits for the path of a file in a skill.
const (
	maxPath  = 1024 // bytes
	maxPart  = 255
	maxDepth = 16
)

// SplitPath checks the path of an uploaded file and splits it into the skill's directory and the rest.
func SplitPath(name string) (dir, rest string, err error) {
	bad := func(why string) error { return Invalid(name, "The file %.200q %s.", name, why) }
	switch {
	case name == "" || len(name) > maxPath:
		return "", "", bad("needs a path of 1 to 1024 bytes, such as my-skill/SKILL.md")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(name, `\`):
		return "", "", bad("has a path with a backslash or a control character, or that is not UTF-8")
	case path.Clean(name) != name || path.IsAbs(name) || strings.HasPrefix(name, "../") || name == "..":
		return "", "", bad(`has a path with "/" at its beginning, "." or ".."; these must be left out`)
	case strings.Count(name, "/") > maxDepth:
		return "", "", bad("is more than 16 directories deep")
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxPart {
			return "", "", bad("has a name of more than 255 bytes in its path")
		}
	}
	dir, rest, ok := strings.Cut(name, "/")
	if !ok {
		return "", "", bad("is in no directory; all files must be in the skill's directory, such as my-skill/SKILL.md")
	}
	return dir, rest, nil
}

// Mode is the mode of a file.
func Mode(executable bool) fs.FileMode {
	if executable {
		return 0o755
	}
	return 0o644
}

// TarHeader is the header of a file in a tar archive.
func TarHeader(name string, mode fs.FileMode, size int64, at time.Time) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode.Perm()), Size: size,
		ModTime: at.Truncate(time.Second), Format: tar.FormatPAX}
}

// Invalid returns an error about an item, whose name it shortens.
func Invalid(item, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", Shown(item), format, args...)
}

// NoSkill returns the error for a skill that does not exist.
func NoSkill(id string) error {
	return proto.Errorf(proto.NotFound, "", Shown(id),
		"Skill %q not found; GET /v1/skills lists the skills that exist.",
		Shown(id))
}

// Shown shortens a text of a request that an error repeats.
func Shown(text string) string { return proto.Shorten(text, 100) }
