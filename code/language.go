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
	program string   // the program that runs it
	argv    []string // the arguments of an interpreter with its driver
	image   string   // an image that has the program
}

// programs is a language whose cells are whole programs. The image dev has it.
func programs(name, program string, aliases ...string) language {
	return language{name: name, aliases: aliases, program: program, image: "dev",
		argv: []string{"sh", "-c", withPython, "python3", driver.Programs, name}}
}

// withPython runs a driver that is in Python for another language.
const withPython = `command -v python3 >/dev/null || { echo "berth: python3 is missing" >&2; exit 127; }
exec python3 -c "$@"`

// languages lists all languages; the first is the default.
var languages = []language{
	{name: "python", aliases: []string{"python3", "py"}, program: "python3", argv: []string{"python3", "-c",
		driver.Python, driver.PythonRich, driver.PythonNotebook, driver.PythonCharts}, image: "base"},
	{name: "js", aliases: []string{"javascript", "node"}, program: "node", argv: []string{"sh", "-c", onThree, "node",
		"-e", driver.Node, "js", driver.NodeModules, driver.Acorn}, image: "base"},
	{name: "ts", aliases: []string{"typescript"}, program: "node 22.13 or newer, esbuild or typescript",
		argv:  []string{"sh", "-c", onThree, "node", "-e", driver.Node, "ts", driver.NodeModules, driver.Acorn},
		image: "base"},
	{name: "r", program: "Rscript", argv: []string{"Rscript", "--no-init-file", "-e",
		"eval(parse(text = commandArgs(TRUE)[1]))", driver.R}, image: "full"},
	{name: "java", aliases: []string{"jshell"}, program: "java with jdk.jshell", argv: []string{"sh", "-c", javaStart,
		driver.Java, driver.JavaDir}, image: "full"},
	{name: "bash", aliases: []string{"sh", "shell"}, program: "bash", argv: []string{"bash", "-c", driver.Shell},
		image: "base"},
	programs("c", "gcc"), programs("cpp", "g++", "c++"), programs("fortran", "gfortran", "f90"),
	programs("go", "go", "golang"), programs("rust", "rustc", "rs"), programs("php", "php"),
}

// Languages lists the names of all languages, without their aliases.
func Languages() []string {
	names := make([]string, len(languages))
	for i, l := range languages {
		names[i] = l.name
	}
	return names
}

// Names lists the names of all languages, with their aliases.
func Names() (names []string) {
	for _, l := range languages {
		names = append(append(names, l.name), l.aliases...)
	}
	return names
}

// languageOf finds a language by its name or an alias, in any case; "" is python.
func languageOf(name string) (language, error) {
	if name == "" {
		return languages[0], nil
	}
	lower := strings.ToLower(name)
	for _, l := range languages {
		if l.name == lower || slices.Contains(l.aliases, lower) {
			return l, nil
		}
	}
	return language{}, proto.Invalid("language", "language %.40q is not known; use one of %s", name,
		strings.Join(Languages(), ", "))
}
