// Package module_test renames the Go module in a copy of the sources, which then has no trace of the old path.
package module_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth/test/needs"
)

const renamed = "example.org/berth"

// TestRename renames, lists the packages of all modules, and builds the one that others import. With BERTH_MODULE set,
// as in `make test-module`, it vets everything and runs the house rules.
func TestRename(t *testing.T) {
	needs.Time(t)
	dir := t.TempDir()
	run(t, "../..", "sh", "-euc", `git ls-files -z | xargs -0 cp --parents -t "$1"; cd "$1"; git init -q; git add -A`,
		"sh", dir)
	if out, err := exec.Command("sh", "-c", "cd "+dir+" && mk/module 'no path'").CombinedOutput(); err == nil {
		t.Errorf("a wrong path is taken: %s", out)
	}
	run(t, dir, "make", "-s", "module", "PATH="+renamed)
	for _, module := range []string{".", "builder", "test/bench"} {
		for line := range strings.Lines(run(t, filepath.Join(dir, module), "go", "list", "-test",
			"-f", "{{.ImportPath}} {{.Imports}}", "./...")) {
			if !strings.HasPrefix(line, renamed) || regexp.MustCompile(`[ \[]berth/`).MatchString(line) {
				t.Errorf("%s: %s", module, line)
			}
		}
	}
	rest := regexp.MustCompile("(?m)^module berth|[`\"]berth/(client|proto|session)\\b")
	for name := range strings.FieldsSeq(run(t, dir, "git", "ls-files", "go.mod", "*.go", "*.md", "*.json")) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if found := rest.Find(text); found != nil && !strings.HasPrefix(name, "test/module/") {
			t.Errorf("%s has %q", name, found)
		}
	}
	if !bytes.Contains([]byte(run(t, dir, "cat", "mk/test")), []byte(`'^example\.org/berth/(daemon`)) {
		t.Error("mk/test has the old path")
	}
	if os.Getenv("BERTH_MODULE") == "" {
		run(t, dir, "go", "build", "./client")
		return
	}
	run(t, dir, "go", "vet", "./...")
	run(t, dir, "go", "test", "-short", ".", "./client", "./api/openapi", "./api/native/...")
}

// run runs a program and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, stderr.String())
	}
	return string(out)
}
