// Package generators_test holds the OpenAPI document against programs that others made for such documents: two linters
// with their recommended rules, and three generators whose clients do a task with a real daemon. `make test-generators`
// runs it.
package generators_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

// start starts a daemon and writes its document to a file.
func start(t *testing.T) (d *daemontest.Daemon, document string) {
	t.Helper()
	if os.Getenv("BERTH_GENERATORS") == "" {
		t.Skip("BERTH_GENERATORS is not set: `make test-generators` runs this, and installs 600 MB once")
	}
	needs.Containers(t)
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, line := range d.Faults() {
			t.Errorf("the daemon had an error of its own: %s", line)
		}
		_ = d.Close()
	})
	res, err := http.Get(d.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	document = filepath.Join(t.TempDir(), "openapi.json")
	if err == nil {
		err = os.WriteFile(document, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, document
}

// run runs a program and returns its output. It must succeed.
func run(t *testing.T, d *daemontest.Daemon, dir string, argv ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "BERTH_URL="+d.URL, "BERTH_API_KEY="+d.Key, "GOWORK=off", "GOFLAGS=-mod=mod")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", strings.Join(argv, " "), err, out, stderr.String())
	}
	return out
}

// An exception is a rule of a linter that the document does not keep, and why.
type exception struct {
	Linter, Rule, Reason string
	At                   []string // JSON pointers; none: anywhere
}

// Each linter finds nothing but the exceptions, and each exception is still needed.
func TestLint(t *testing.T) {
	d, document := start(t)
	dir := clients.Install(t, "lint", clients.Node, filepath.Join("lint", "package.json"),
		filepath.Join("lint", "package-lock.json"))
	text, err := os.ReadFile(filepath.Join("lint", "exceptions.json"))
	if err != nil {
		t.Fatal(err)
	}
	var exceptions []exception
	if err := json.Unmarshal(text, &exceptions); err != nil {
		t.Fatal(err)
	}
	used := make([]int, len(exceptions))
	for linter, problems := range map[string][]problem{"redocly": redocly(t, d, dir, document),
		"spectral": spectral(t, d, dir, document)} {
		for _, p := range problems {
			if !excepted(exceptions, used, linter, p) {
				t.Errorf("%s: %s at %s: %s", linter, p.rule, p.at, p.message)
			}
		}
	}
	for i, e := range exceptions {
		if used[i] < max(1, len(e.At)) {
			t.Errorf("the exception from %s of %s is not needed: remove it", e.Rule, e.Linter)
		}
		if e.Reason == "" {
			t.Errorf("the exception from %s of %s has no reason", e.Rule, e.Linter)
		}
	}
}

// A problem is what a linter has found.
type problem struct{ rule, at, message string }

// excepted reports whether there is an exception for a problem, and counts its use.
func excepted(list []exception, used []int, linter string, p problem) bool {
	for i, e := range list {
		if e.Linter != linter || e.Rule != p.rule {
			continue
		}
		for _, at := range e.At {
			if strings.HasPrefix(p.at, at) {
				used[i]++
				return true
			}
		}
		if len(e.At) == 0 {
			used[i]++
			return true
		}
	}
	return false
}

func redocly(t *testing.T, d *daemontest.Daemon, dir, document string) (list []problem) {
	t.Helper()
	// A status other than 0 says that there are errors, which the output has.
	out := run(t, d, dir, "sh", "-c", `node_modules/.bin/redocly lint --extends recommended --max-problems 1000 `+
		`--format json "$0" || true`, document)
	var found struct {
		Totals   struct{ Errors, Warnings int }
		Problems []struct {
			RuleID   string
			Message  string
			Location []struct{ Pointer string }
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("redocly: %v in %s", err, out)
	}
	for _, p := range found.Problems {
		at := ""
		if len(p.Location) > 0 {
			at = strings.TrimPrefix(p.Location[0].Pointer, "#")
		}
		list = append(list, problem{p.RuleID, at, p.Message})
	}
	return list
}

func spectral(t *testing.T, d *daemontest.Daemon, dir, document string) (list []problem) {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("extends: [[\"spectral:oas\", recommended]]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	run(t, d, dir, "sh", "-c", `node_modules/.bin/spectral lint --ruleset "$0" --format json --output "$1" "$2" || `+
		`test -s "$1"`, rules, report, document)
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var found []struct {
		Code, Message string
		Path          []any
	}
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatalf("spectral: %v in %s", err, text)
	}
	for _, p := range found {
		var at strings.Builder
		for _, key := range p.Path {
			at.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(key)))
		}
		list = append(list, problem{p.Code, at.String(), p.Message})
	}
	return list
}

// openapi-typescript makes types, which the TypeScript compiler checks the program against.
func TestTypeScript(t *testing.T) {
	d, document := start(t)
	dir := clients.Install(t, "generator-ts", clients.Node, filepath.Join("ts", "package.json"),
		filepath.Join("ts", "package-lock.json"), filepath.Join("ts", "main.ts"))
	run(t, d, dir, "node_modules/.bin/openapi-typescript", document, "--output", "berth.ts")
	run(t, d, dir, "node_modules/.bin/tsc", "--strict", "--noEmitOnError", "--module", "nodenext", "--target", "es2022",
		"--lib", "es2022,dom,dom.iterable", "--outDir", "built", "main.ts")
	clients.Report(t, run(t, d, dir, "node", "built/main.js"), 6)
}

// openapi-python-client makes a package.
func TestPython(t *testing.T) {
	d, document := start(t)
	dir := clients.Install(t, "generator-py", clients.Python, filepath.Join("py", "requirements.txt"),
		filepath.Join("py", "config.yaml"), filepath.Join("py", "main.py"))
	// Its formatter is a program beside it.
	run(t, d, dir, "sh", "-c", `PATH=$PWD/venv/bin:$PATH exec venv/bin/openapi-python-client generate --path "$0" `+
		`--config config.yaml --overwrite --meta none --output-path berth_client`, document)
	clients.Report(t, run(t, d, dir, "venv/bin/python", "main.py"), 6)
}

// oapi-codegen makes one file, which is compiled with the program.
func TestGo(t *testing.T) {
	d, document := start(t)
	dir := clients.Install(t, "generator-go", `go mod download && go build -o oapi-codegen `+
		`github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen`, filepath.Join("go", "go.mod"),
		filepath.Join("go", "go.sum"), filepath.Join("go", "main.go"))
	run(t, d, dir, "./oapi-codegen", "-package", "main", "-generate", "types,client", "-o", "berth.go", document)
	run(t, d, dir, "go", "build", "-o", "program", "main.go", "berth.go")
	clients.Report(t, run(t, d, dir, "./program"), 6)
}
