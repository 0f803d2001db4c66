package code

import (
	"slices"
	"strings"

	"berth/code/driver"
	"berth/proto"
)

// onThree gives a program its requests on file descriptor 3, so that a cell cannot read them from its standard input.
// Its arguments are those of the program, beginning with the program's name.
const onThree = `command -v "$0" >/dev/null || { echo "berth: $0 is missing" >&2; exit 127; }; exec "$0" "$@" 3<&0 </dev/null`

// javaStart runs the driver for Java: compiled if the image has it so, or else from its source. It uses the faster
// compiler, which suits short runs.
const javaStart = `command -v java >/dev/null && command -v jshell >/dev/null || { echo "berth: java is missing" >&2; exit 127; }
o="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto --add-modules jdk.jshell,jdk.unsupported"
[ -e "$1/Driver.class" ] && exec java $o -cp "$1" Driver
d=$(mktemp -d) && printf %s "$0" >"$d/Driver.java" && exec java $o -Dberth.source="$d" "$d/Driver.java"`

// A language is a programming language that code can be in.
type language struct {
	name    string
	aliases []string
	program string   // that runs it
	argv    []string // of an interpreter with its driver
	image   string   // that has it
}

// languages are all of them.
var languages = []language{
	{name: "python", aliases: []string{"python3", "py"}, program: "python3", argv: []string{"python3", "-c",
		driver.Python, driver.PythonRich}, image: "base"},
	{name: "js", aliases: []string{"javascript", "node"}, program: "node", argv: []string{"sh", "-c", onThree, "node",
		"-e", driver.Node, "js"}, image: "base"},
	{name: "ts", aliases: []string{"typescript"}, program: "node with esbuild or typescript", argv: []string{"sh", "-c",
		onThree, "node", "-e", driver.Node, "ts"}, image: "full"},
	{name: "r", aliases: []string{"R"}, program: "Rscript", argv: []string{"Rscript", "--no-init-file", "-e",
		"eval(parse(text = commandArgs(TRUE)[1]))", driver.R}, image: "full"},
	{name: "java", aliases: []string{"jshell"}, program: "java with jdk.jshell", argv: []string{"sh", "-c", javaStart,
		driver.Java, driver.JavaDir}, image: "full"},
	{name: "bash", aliases: []string{"sh", "shell"}, program: "bash", argv: []string{"bash", "-c", driver.Shell},
		image: "base"},
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
	return language{}, proto.Errorf(proto.InvalidArgument, "", "language", "language %.40q is not known; use one of %s",
		name, strings.Join(Languages(), ", "))
}

// missing is the error for an image that has no program for the language.
func (l language) missing(image string) error {
	return proto.Errorf(proto.Unsupported, "", "language", "image %s cannot run %s: it has no %s; use an image that "+
		"has it, such as %s", image, l.name, l.program, l.image)
}
