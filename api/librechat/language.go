package librechat

import (
	"regexp"
	"strings"

	"berth/proto"
)

// mainFile is the name of the file with the code, without its extension. It stands in the working directory, so that
// code imports its neighbours, and is there only while the code runs.
const mainFile = ".berth-main"

// A language is one that code can be in.
type language struct {
	names   []string // the first is the usual one
	program string   // that runs it
	ext     string   // of the file
	script  string   // for sh, which gets the file as $0 and the arguments of the code; "": program runs the file
	image   string   // one of ours that has the program; "": none
}

// Scripts of languages whose code is compiled first, to a directory outside of the working directory.
const (
	compiled = `d=$(mktemp -d) && `
	runIt    = ` && exec "$d/main" "$@"`
)

// asModule runs JavaScript. Code may be a module or not, and only Node can tell. A module can call require here, too.
const asModule = `if node --check "$0" 2>/dev/null; then exec node "$0" "$@"; fi
m="${0%.cjs}.mjs"
{ printf 'import{createRequire as _r}from"module";const require=_r(import.meta.url);'; cat "$0"; } >"$m" &&
exec node "$m" "$@"`

// typeScript compiles with what the file imports by a relative path, to a module. Where esbuild is missing, node
// compiles the file itself, if it can, and the paths of its imports need their extensions.
const typeScript = `if command -v esbuild >/dev/null; then
	m="${0%.ts}.mjs"
	esbuild --log-level=warning --bundle --packages=external --platform=node --format=esm \
		--banner:js='import{createRequire as _r}from"module";const require=_r(import.meta.url);' \
		--outfile="$m" "$0" >&2 || exit
	exec node "$m" "$@"
fi
case $(node --version) in
v?.*|v1?.*|v2[01].*) echo 'berth: node is missing' >&2; exit 127 ;;
v2[2-5].*) exec node --disable-warning=ExperimentalWarning --experimental-transform-types "$0" "$@" ;;
esac
exec node "$0" "$@"`

var languages = []language{
	{names: []string{"py", "python", "python3"}, program: "python3", ext: "py", image: "base"},
	{names: []string{"js", "javascript", "node", "nodejs", "bun"}, program: "node", ext: "cjs", image: "base"},
	{names: []string{"ts", "typescript"}, program: "node", ext: "ts", script: typeScript, image: "base"},
	{names: []string{"bash", "sh", "shell"}, program: "bash", ext: "sh", image: "base"},
	{names: []string{"r"}, program: "Rscript", ext: "R", image: "full"},
	{names: []string{"java"}, program: "java", ext: "java", image: "dev"},
	{names: []string{"php"}, program: "php", ext: "php", image: "dev"},
	{names: []string{"c"}, program: "gcc", ext: "c", image: "dev",
		script: compiled + `gcc -o "$d/main" "$0" -lm` + runIt},
	{names: []string{"cpp", "c++"}, program: "g++", ext: "cpp", image: "dev",
		script: compiled + `g++ -o "$d/main" "$0"` + runIt},
	{names: []string{"rs", "rust"}, program: "rustc", ext: "rs", image: "dev",
		script: compiled + `rustc -o "$d/main" "$0"` + runIt},
	{names: []string{"go", "golang"}, program: "go", ext: "go", image: "dev",
		script: compiled + `cp "$0" "$d/main.go" && go build -o "$d/main" "$d/main.go"` + runIt},
	{names: []string{"d"}, program: "dmd", ext: "d", script: compiled +
		`cp "$0" "$d/code.d" && dmd -od="$d" -of="$d/main" "$d/code.d"` + runIt},
	{names: []string{"f90", "fortran"}, program: "gfortran", ext: "f90", image: "dev",
		script: compiled + `gfortran -J "$d" -o "$d/main" "$0"` + runIt},
}

// languageOf finds a language by one of its names, in any case.
func languageOf(name string) (language, error) {
	var usual []string
	for _, l := range languages {
		for _, n := range l.names {
			if strings.EqualFold(n, name) {
				return l, nil
			}
		}
		usual = append(usual, l.names[0])
	}
	return language{}, proto.Invalid("lang", "Unsupported language: %.40q; use one of %s", name,
		strings.Join(usual, ", "))
}

// mayBeModule finds code that Node may take for a module only.
var mayBeModule = regexp.MustCompile(`\b(import|export|await)\b`)

// file is the name of the file with the code.
func (l language) file() string { return mainFile + "." + l.ext }

// command returns what runs the file in the working directory. A shell looks for the program first, so that its lack
// is not mistaken for a failure of the code.
func (l language) command(code string, args []string) []string {
	script := l.script
	switch {
	case script != "":
	case l.ext == "cjs" && mayBeModule.MatchString(code):
		script = asModule
	default:
		script = "exec " + l.program + ` "$0" "$@"`
	}
	look := "command -v " + l.program + " >/dev/null || { echo '" + l.lack() + "' >&2; exit 127; }\n"
	return append([]string{"sh", "-c", look + script, dataDir + "/" + l.file()}, args...)
}

// lack is what a command prints if the program is missing.
func (l language) lack() string { return "berth: " + l.program + " is missing" }

// missing returns the error for an image without the program.
func (l language) missing(image string) error {
	way := "build an image that has it with berth image build, and have the daemon use that by --image"
	if l.image != "" {
		way = "have the daemon use an image that has it, such as " + l.image + ", by --image"
	}
	return proto.Errorf(proto.Unsupported, "", "lang", "image %s cannot run %s: it has no %s; %s", image, l.names[0],
		l.program, way)
}
