package mutants

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/client"
	"berth/proto"
	"berth/test/attack"
	"berth/test/attacktest"
	"berth/test/needs"
)

var (
	chosen   = flag.String("mutants", "", "mutants to try, by the beginnings of their names, with commas; all: all")
	together = flag.Bool("mutants.together", false, "try the mutants in one build: quicker, but one may hide another")
)

// few are tried with every run of the tests, in one build: a check of the daemon, and one in a library.
var few = []string{"owner: MCP sessions", "egress: only the first address is judged"}

// root is the repository.
const root = "../.."

// Each mutant fits the source, and what must notice it is there. This needs no build.
func TestMutantsFit(t *testing.T) {
	names := map[string]bool{}
	for _, m := range all {
		if names[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		names[m.Name] = true
		if _, err := breach(root, []Mutant{m}); err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(attack.Cases(), func(c attack.Case) bool { return c.Name == m.Case && !c.Slow }) {
			t.Errorf("%s: there is no attack %s that is quick", m.Name, m.Case)
		}
		dir, name := m.test()
		if err := hasTest(dir, name); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	for _, name := range few {
		if !names[name] {
			t.Errorf("there is no mutant %s", name)
		}
	}
}

// hasTest looks for a test function in a package.
func hasTest(dir, name string) error {
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		return err
	}
	want := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if want.Match(source) {
			return nil
		}
	}
	return fmt.Errorf("there is no test %s in %s", name, dir)
}

// picked returns the mutants to try.
func picked() (list []Mutant) {
	names := few
	if *chosen != "" {
		names = strings.Split(*chosen, ",")
	}
	for _, m := range all {
		if *chosen == "all" || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(m.Name, n) }) {
			list = append(list, m)
		}
	}
	return list
}

// Each mutant is noticed by its attack and by its Go test.
func TestMutants(t *testing.T) {
	needs.Containers(t)
	list := picked()
	if len(list) == 0 {
		t.Fatalf("no mutant has a name that begins with %q", *chosen)
	}
	if *chosen == "" || *together {
		try(t, list)
		return
	}
	for _, m := range list {
		t.Run(m.Name, func(t *testing.T) { try(t, []Mutant{m}) })
	}
}

// try builds the program with these mutants, and reports those that are not noticed. It prints one line for each.
func try(t *testing.T, list []Mutant) {
	began := time.Now()
	dir := t.TempDir()
	over, err := overlay(absolute(t), dir, list)
	if err != nil {
		t.Fatal(err)
	}
	bin := build(t, dir, over)
	verdicts, err := attacked(t, bin, list)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if v := verdicts[m.Case]; v.Verdict != attack.Through {
			t.Errorf("%s: %s does not notice it: %s, %s", m.Name, m.Case, v.Verdict, v.Happened)
		}
	}
	for _, m := range list {
		test := tested(t, over, m)
		fmt.Printf("%-50s %-26s %-9s %-55s %-9s %4.0f s\n", m.Name, m.Case, verdicts[m.Case].Verdict, m.Test, test,
			time.Since(began).Seconds())
		if test != failed {
			t.Errorf("%s: %s does not notice it: %s", m.Name, m.Test, test)
		}
	}
}

// absolute is the repository's path, as the go command names files.
func absolute(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// build makes a directory of programs, of which berth and berth-guest are built from the overlay.
func build(t *testing.T, dir, over string) (bin string) {
	t.Helper()
	made, _ := needs.Containers(t)
	bin = filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"runc", "runsc", "containerd-shim-runc-v2"} {
		if err := os.Symlink(filepath.Join(made, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, flags := range map[string]string{"berth": "-s -w", "berth-guest": "-s -w -E main.entry"} {
		cmd := exec.Command("go", "build", "-trimpath", "-overlay", over, "-ldflags", flags, "-o",
			filepath.Join(bin, name), "./cmd/"+name)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", name, err, out)
		}
	}
	return bin
}

// attacked runs the cases of the mutants against a daemon of these programs, and returns the verdicts by case.
func attacked(t *testing.T, bin string, list []Mutant) (verdicts map[string]attack.Report, err error) {
	t.Helper()
	t.Setenv("BERTH_BIN", bin)
	d, err := attacktest.Start()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	c, err := client.New(client.Config{Host: d.URL, Key: d.Key})
	if err != nil {
		return nil, err
	}
	o := attack.Options{Client: c, Quick: true, Rounds: 2000, Program: filepath.Join(bin, "berth"),
		Classes: []proto.RuntimeClass{proto.ClassRunc}}
	for _, one := range attack.Cases() {
		if slices.ContainsFunc(list, func(m Mutant) bool { return m.Case == one.Name }) {
			o.Cases = append(o.Cases, one)
		}
	}
	verdicts = map[string]attack.Report{}
	err = attack.Run(context.Background(), o, func(r attack.Report) { verdicts[r.Name] = r })
	return verdicts, err
}

// Results of a Go test.
const (
	failed = "fails"
	passed = "passes"
)

// tested runs the Go test of a mutant over the overlay. A package that cannot be built is no failure of the test.
func tested(t *testing.T, over string, m Mutant) string {
	t.Helper()
	dir, name := m.test()
	cmd := exec.Command("go", "test", "-trimpath", "-overlay", over, "-count=1", "-run", "^"+name+"$", "./"+dir)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("--- FAIL: "+name+" ")):
		return failed
	case err == nil:
		return passed
	}
	t.Errorf("%s: running %s: %v\n%s", m.Name, m.Test, err, out)
	return "broken"
}
