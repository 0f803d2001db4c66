package code

import (
	_ "embed"
	"slices"
	"strings"

	"berth/proto"
)

// The drivers, in their own languages.
var (
	//go:embed driver/boot.py
	pythonBoot string
	//go:embed driver/rich.py
	pythonRich string
)

// A language is one that code can be in.
type language struct {
	name    string
	aliases []string
	program string   // that runs it
	argv    []string // of an interpreter with its driver
	image   string   // that has it
}

// languages are all of them.
var languages = []language{
	{name: "python", aliases: []string{"python3", "py"}, program: "python3", argv: []string{"python3", "-c", pythonBoot, pythonRich}, image: "base"},
}

// Languages names those that code can be in, without their other names.
func Languages() []string {
	names := make([]string, len(languages))
	for i, l := range languages {
		names[i] = l.name
	}
	return names
}

// Names are all names that languages have.
func Names() (names []string) {
	for _, l := range languages {
		names = append(append(names, l.name), l.aliases...)
	}
	return names
}

// languageOf finds one by any of its names; none is python.
func languageOf(name string) (language, error) {
	if name == "" {
		return languages[0], nil
	}
	for _, l := range languages {
		if l.name == name || slices.Contains(l.aliases, name) {
			return l, nil
		}
	}
	return language{}, proto.Errorf(proto.InvalidArgument, "", "language", "language %.40q is not known; use one of %s", name, strings.Join(Languages(), ", "))
}

// missing is the error for an image that has no program for the language.
func (l language) missing(image string) error {
	return proto.Errorf(proto.Unsupported, "", "language", "image %s cannot run %s: it has no %s; use an image that has it, such as %s", image, l.name, l.program, l.image)
}
