// Package adapters_test has frameworks work in real containers, through the adapters of sdk/python and sdk/typescript.
//
// Each directory here is named as the adapter that it is for. It has a program of the test's own, main.py or main.mjs,
// and all packages that it needs with their versions: requirements.txt, or package.json and package-lock.json. The
// program gets the daemon's URL and key as BERTH_URL and BERTH_API_KEY, the adapter's directory as BERTH_ADAPTER, and
// prints "done" as its last line. A Python program imports the SDK and its adapter from the sources, whose types mypy
// checks first; requirements.txt has mypy, too. If it has hatchling, pip installs the adapter, so that the framework
// finds it by its entry points. A first line "# Python 3.12" asks for that version or a newer one. A program for Node
// finds SDK and adapter built and packed in node_modules.
package adapters_test

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

// adapters are the directories of adapters by the file that says how to install a program's packages.
var adapters = map[string]struct{ install, sources string }{
	"requirements.txt":  {clients.Python + earlier, "../../sdk/python"},
	"package-lock.json": {clients.Node, "../../sdk/typescript"},
}

// earlier installs an earlier version of a framework for a program that works with two: without its dependencies, which
// are those of the newest, into the directory earlier.
const earlier = `
[ ! -e earlier.txt ] || venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target earlier \
	-r earlier.txt`

func TestAdapters(t *testing.T) {
	if os.Getenv("BERTH_ADAPTERS") == "" {
		t.Skip("BERTH_ADAPTERS is not set: `make test-adapters` runs this, and installs 1 GB once")
	}
	needs.Containers(t)
	programs, err := filepath.Glob("*/main.*")
	if err != nil {
		t.Fatal(err)
	}
	running := daemons{}
	for _, program := range programs {
		name := filepath.Dir(program)
		most := cmp.Or(networkMax[name], "open")
		t.Run(name, func(t *testing.T) { check(t, running.get(t, most), name) })
	}
	for _, d := range running {
		for _, line := range d.Faults() {
			t.Errorf("the daemon had an error of its own: %s", line)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// networkMax is the daemon's --network-max for the programs that see more refused than others do.
var networkMax = map[string]string{"ai-sdk": "allowlist"}

// daemons are those that run, by their --network-max.
type daemons map[string]*daemontest.Daemon

// get returns a daemon, and starts it for the first program that needs it.
func (ds daemons) get(t *testing.T, most string) *daemontest.Daemon {
	if d := ds[most]; d != nil {
		return d
	}
	d, err := daemontest.New("--stop-on-exit", "--ports-max", "public", "--network-max", most)
	if err != nil {
		t.Fatal(err)
	}
	ds[most] = d
	return d
}

// check installs the framework of an adapter, and runs the program of the test.
func check(t *testing.T, d *daemontest.Daemon, name string) {
	for list, a := range adapters {
		if _, err := os.Stat(filepath.Join(name, list)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		files, err := filepath.Glob(name + "/*.*")
		if err != nil {
			t.Fatal(err)
		}
		install := a.install
		if m := pythonFrom.FindSubmatch(head(t, filepath.Join(name, list))); m != nil {
			minor, _ := strconv.Atoi(string(m[1])) // digits
			install = clients.PythonFrom(minor) + earlier
		}
		dir := clients.Install(t, "adapter-"+name, install, files...)
		sdk, err := filepath.Abs(a.sources)
		if err != nil {
			t.Fatal(err)
		}
		adapter := filepath.Join(sdk, "adapters", name)
		if _, err := os.Stat(adapter); err != nil {
			t.Fatalf("there is no such adapter: %v", err)
		}
		if list == "requirements.txt" {
			python(t, d, dir, sdk, adapter)
		} else {
			node(t, d, dir, sdk, adapter)
		}
		return
	}
	t.Error("it has neither requirements.txt nor package-lock.json")
}

// pythonFrom matches the first line of requirements.txt that asks for a newer Python than that of most machines.
var pythonFrom = regexp.MustCompile(`^# Python 3\.(\d+)\n`)

// head returns the beginning of a file.
func head(t *testing.T, path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text[:min(len(text), 80)]
}

// python checks the types of an adapter, and runs the program with it.
func python(t *testing.T, d *daemontest.Daemon, dir, sdk, adapter string) {
	modules := adapter
	if found, _ := filepath.Glob(filepath.Join(dir, "venv/lib/*/site-packages/hatchling")); len(found) > 0 {
		modules = t.TempDir()
		run(t, d, dir, nil, "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--no-deps", "--no-build-isolation", "--target", modules, adapter)
	}
	env := []string{"PYTHONPATH=" + sdk + "/src:" + modules, "MYPYPATH=" + sdk + "/src", "PYTHONDONTWRITEBYTECODE=1"}
	t.Run("types", func(t *testing.T) {
		run(t, d, dir, env, "venv/bin/mypy", "--strict", "--cache-dir", filepath.Join(dir, "mypy"), adapter)
	})
	t.Run("program", func(t *testing.T) {
		done(t, run(t, d, dir, append(env, "BERTH_ADAPTER="+adapter), "venv/bin/python", "main.py"))
	})
}

// run runs a program to its end, shows what it prints, and returns that.
func run(t *testing.T, d *daemontest.Daemon, dir string, env []string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = dir, t.Output()
	cmd.Env = append(append(os.Environ(), "BERTH_URL="+d.URL, "BERTH_API_KEY="+d.Key), env...)
	out, err := cmd.Output()
	if t.Output().Write(out); err != nil {
		t.Errorf("%s: %v", strings.Join(argv, " "), err)
	}
	return string(out)
}

// node builds the SDK and an adapter, which checks its types, and runs the program with them.
func node(t *testing.T, d *daemontest.Daemon, dir, sdk, adapter string) {
	temp, modules := t.TempDir(), filepath.Join(dir, "node_modules")
	archive := clients.PackTypeScriptSDK(t, sdk, filepath.Join(temp, "sdk"))
	clients.UnpackTypeScript(t, archive, filepath.Join(modules, "@berth", "sdk"))
	t.Run("types", func(t *testing.T) {
		archive := clients.PackTypeScript(t, adapter, modules, filepath.Join(temp, "adapter"))
		clients.UnpackTypeScript(t, archive, filepath.Join(modules, "@berth", filepath.Base(adapter)))
	})
	t.Run("program", func(t *testing.T) {
		done(t, run(t, d, dir, []string{"BERTH_ADAPTER=" + adapter}, "node", "main.mjs"))
	})
}

// done checks that a program came to its end.
func done(t *testing.T, out string) {
	t.Helper()
	if lines := strings.Fields(out); len(lines) == 0 || lines[len(lines)-1] != "done" {
		t.Error(`the last word of its output is not "done"`)
	}
}
