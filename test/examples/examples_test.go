// Package examples_test runs each recipe of examples by the line of its index, against the real daemon. Those that need
// a model have one that plays a script; those that need a framework run with `make test-examples` alone.
package examples_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/e2b/access"
	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

// root is the directory of the recipes.
const root = "../../examples"

// A recipe is what the suite knows about a directory of examples.
type recipe struct {
	python  string            // requirements of the installation that runs it; "": it is not in Python
	node    string            // directory of the package.json of the installation that runs it
	large   bool              // its installation is large: it runs with `make test-examples` alone
	claude  bool              // it needs the program of Claude Code, which is large, too
	inPlace bool              // it runs in its own directory, since it is a package of this module
	env     map[string]string // besides the daemon's; %URL%, %KEY%, %E2B_KEY% and %MODELS% are replaced
	stdin   string
	prints  []string                                 // regular expressions that its output matches
	makes   map[string]string                        // files that it makes, and how each begins
	has     map[string]string                        // and what each contains
	after   func(t *testing.T, w *world, dir string) // looks at more, in the directory where it ran
}

// installation is a program of others in the cache; recipes share those of other tests.
type installation struct {
	name, file string
	alias      map[string]string // module under its own name → its name in the installation
}

// Where the pinned requirements are, and under which name the cache has them.
var pythons = map[string]installation{
	"anthropic":  {name: "sdk-py", file: "../sdktest/py/requirements.txt"},
	"frameworks": {name: "examples-python", file: "python/requirements.txt"},
	"letta":      {name: "examples-letta", file: "letta/requirements.txt"},
	"praisonai":  {name: "tools-praisonai", file: "../toolclients/praisonai/requirements.txt"},
	"sdk":        {name: "sdk-python", file: "../../sdk/python/tests/requirements.txt"},
	"e2b":        {name: "e2b-py", file: "../e2bclients/py/requirements.txt"},
}

var nodes = map[string]installation{
	"frameworks": {name: "examples-node", file: "node"},
	"tsx":        {name: "examples-tsx", file: "tsx"},
	"librechat": {name: "librechat-ts", file: "../librechatclients/ts",
		alias: map[string]string{"@librechat/agents": "agents"}},
}

// A line of the index: the name of a recipe, the file to copy, and the command in the last column.
var indexLine = regexp.MustCompile("(?m)^\\| \\[([a-z0-9-]+)\\]\\(([^)]+)\\) \\|.*\\| `([^`]+)` \\|$")

// index returns the command of each recipe in the index.
func index(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{}
	for _, line := range indexLine.FindAllStringSubmatch(string(text), -1) {
		commands[line[1]] = line[3]
		if _, err := os.Stat(filepath.Join(root, line[2])); err != nil || filepath.Dir(line[2]) != line[1] {
			t.Errorf("%s: the index leads to %s: %v", line[1], line[2], err)
		}
	}
	return commands
}

// TestIndex checks that each directory is in the index and in the suite, and that its pins are those that the suite
// installs.
func TestIndex(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	commands := index(t)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		name := entry.Name()
		found[name] = true
		if commands[name] == "" {
			t.Errorf("%s is not in the index, or its line has another form", name)
		}
		r, ok := recipes[name]
		if !ok {
			t.Errorf("%s is not in the suite", name)
		}
		if len(r.prints) == 0 && r.after == nil {
			t.Errorf("%s: nothing is expected of its output", name)
		}
		checkPins(t, name, r)
	}
	for name := range maps.Keys(commands) {
		if !found[name] {
			t.Errorf("the index has %s, which does not exist", name)
		}
	}
	for name := range maps.Keys(recipes) {
		if !found[name] {
			t.Errorf("the suite has %s, which does not exist", name)
		}
	}
}

// checkPins checks that a recipe has pinned what it needs, in the versions that run it here.
func checkPins(t *testing.T, name string, r recipe) {
	t.Helper()
	if pins, err := os.ReadFile(filepath.Join(root, name, "requirements.txt")); err == nil {
		installed, err := os.ReadFile(pythons[r.python].file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for pin := range strings.FieldsSeq(string(pins)) {
			if !slices.Contains(strings.Fields(string(installed)), withoutExtras.ReplaceAllString(pin, "")) {
				t.Errorf("%s: %s is not what %s has", name, pin, pythons[r.python].file)
			}
		}
	}
	var wants, has struct{ Dependencies map[string]string }
	if data, err := os.ReadFile(filepath.Join(root, name, "package.json")); err == nil {
		decode(t, data, &wants)
		data, err := os.ReadFile(filepath.Join(nodes[r.node].file, "package.json"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		decode(t, data, &has)
	}
	for module, version := range wants.Dependencies {
		pinned := has.Dependencies[module] == version || slices.Contains(slices.Collect(maps.Values(has.Dependencies)),
			"npm:"+module+"@"+version)
		if !pinned && module != "@berth/sdk" {
			t.Errorf("%s: %s %s is not what %s has", name, module, version, nodes[r.node].file)
		}
	}
}

var withoutExtras = regexp.MustCompile(`\[[^]]*\]`)

func TestRecipes(t *testing.T) {
	needs.Containers(t)
	large := os.Getenv("BERTH_EXAMPLES") != ""
	world := newWorld(t)
	for _, name := range slices.Sorted(maps.Keys(recipes)) {
		t.Run(name, func(t *testing.T) {
			if (recipes[name].large || recipes[name].claude) && !large {
				t.Skip("BERTH_EXAMPLES is not set: `make test-examples` runs this, and installs its framework once")
			}
			t.Parallel()
			world.run(t, name, recipes[name])
		})
	}
}

// A world is what recipes run against.
type world struct {
	*daemontest.Daemon
	commands map[string]string // by recipe
	models   *models
	sdk      string // archive of the TypeScript SDK
}

func newWorld(t *testing.T) *world {
	t.Helper()
	models := newModels(t)
	flags := []string{"--stop-on-exit", "--webhook-allow-private", "127.0.0.1", "--upstream", models.url}
	d, err := daemontest.New(append(flags, network(t)...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, line := range d.Faults() {
			t.Errorf("the daemon had an error of its own: %s", line)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	archive := clients.PackTypeScriptSDK(t, typeScriptSDK, filepath.Join(t.TempDir(), "sdk"))
	return &world{Daemon: d, commands: index(t), models: models, sdk: archive}
}

const typeScriptSDK = "../../sdk/typescript"

// run runs a recipe in a copy of its directory, and checks what comes of it.
func (w *world) run(t *testing.T, name string, r recipe) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, name))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", w.commands[name])
	cmd.Dir = dir
	if r.inPlace {
		cmd.Dir = filepath.Join(root, name)
	}
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
	cmd.Env = append(cmd.Env, w.environment(name, r)...)
	if !r.inPlace { // recipes keep no settings behind
		cmd.Env = append(cmd.Env, "HOME="+t.TempDir())
	}
	if r.claude {
		cmd.Env = append(cmd.Env, "PATH="+claude(t)+":"+os.Getenv("PATH"), "DISABLE_AUTOUPDATER=1")
	}
	if r.python != "" {
		cmd.Env = append(cmd.Env, python(t, r.python)...)
	}
	if r.node != "" {
		w.node(t, r.node, filepath.Join(dir, "node_modules"))
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(r.stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s%s", w.commands[name], err, out, stderr.String())
	}
	w.models.check(t, name)
	for _, want := range r.prints {
		if !regexp.MustCompile("(?m)" + want).Match(out) {
			t.Errorf("it does not print %q, but:\n%s%s", want, out, stderr.String())
		}
	}
	for file, begins := range r.makes {
		made, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.HasPrefix(string(made), begins) || !strings.Contains(string(made), r.has[file]) {
			t.Errorf("%s: %v; it is %.200q, expected %q at its beginning and %q in it", file, err, made, begins,
				r.has[file])
		}
	}
	if r.after != nil {
		r.after(t, w, dir)
	}
}

// environment returns the variables of the daemon, of the model and of the recipe itself.
func (w *world) environment(name string, r recipe) []string {
	env := []string{"BERTH_URL=" + w.URL, "BERTH_HOST=" + w.URL, "BERTH_API_KEY=" + w.Key}
	if w.models.by[name] != nil {
		env = append(env, "MODEL="+name, "ANTHROPIC_BASE_URL="+w.models.url, "ANTHROPIC_API_KEY=a-model-key",
			"OPENAI_BASE_URL="+w.models.url+"/v1", "OPENAI_API_KEY=a-model-key")
	}
	replace := strings.NewReplacer("%URL%", w.URL, "%KEY%", w.Key, "%E2B_KEY%",
		access.SpellKey(w.Key), "%MODELS%", w.models.url)
	for name, value := range r.env {
		env = append(env, name+"="+replace.Replace(value))
	}
	return env
}

// python returns the variables by which `python` is that of an installation, and has our SDK.
func python(t *testing.T, name string) []string {
	t.Helper()
	from := pythons[name]
	dir := clients.Install(t, from.name, clients.Python, from.file)
	sdk, err := filepath.Abs("../../sdk/python")
	if err != nil {
		t.Fatal(err)
	}
	bin, _ := needs.Containers(t)
	return []string{"PATH=" + filepath.Join(dir, "venv/bin") + ":" + bin + ":" + os.Getenv("PATH"),
		"PYTHONPATH=" + sdk + "/src:" + sdk + "/adapters/praisonai"}
}

// node links the modules of an installation into a directory, and unpacks our SDK there if the recipe names it.
func (w *world) node(t *testing.T, name, modules string) {
	t.Helper()
	from := nodes[name]
	var wants struct{ Dependencies map[string]string }
	if data, err := os.ReadFile(filepath.Join(filepath.Dir(modules), "package.json")); err == nil {
		decode(t, data, &wants)
	}
	dir := clients.Install(t, from.name, clients.Node, from.file+"/package.json", from.file+"/package-lock.json")
	links := maps.Clone(from.alias)
	if links == nil {
		links = map[string]string{}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "node_modules"))
	for _, entry := range entries {
		links[entry.Name()] = entry.Name()
	}
	for link, module := range links {
		link = filepath.Join(modules, link)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(link), 0o755),
			os.Symlink(filepath.Join(dir, "node_modules", module), link))
	}
	if err != nil {
		t.Fatal(err)
	}
	if path := wants.Dependencies["@berth/sdk"]; path != "" {
		clients.UnpackTypeScriptSDK(t, typeScriptSDK, w.sdk, modules)
		if filepath.Base(path) != filepath.Base(w.sdk) {
			t.Errorf("package.json names %s, but `npm pack` makes %s", path, filepath.Base(w.sdk))
		}
	}
}

// claude returns the directory of the newest Claude Code.
func claude(t *testing.T) string {
	t.Helper()
	dir, version := clients.InstallNewest(t, clients.NPM("@anthropic-ai/claude-code"))
	found, _ := filepath.Glob(filepath.Join(dir, "node_modules/@anthropic-ai/claude-code-linux-*/claude"))
	if len(found) == 0 {
		t.Fatalf("Claude Code %s has no program for this machine", version)
	}
	return filepath.Dir(found[0])
}

// chromium returns the browser of this machine, or "" for the one that Playwright installs.
func chromium() string {
	path, _ := exec.LookPath("chromium")
	return path
}
