package attack_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/test/attack"
)

// root is the repository.
const root = "../.."

var (
	rowLine  = regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \| ([^|]+) \|$`)
	quoted   = regexp.MustCompile("`([^` ]+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// The document names each group once, and what it names is there.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	groups := map[int]int{}
	for _, row := range rowLine.FindAllStringSubmatch(string(text), -1) {
		group, _ := strconv.Atoi(row[1])
		groups[group]++
		names := quoted.FindAllStringSubmatch(row[3], -1)
		if len(names) == 0 && !strings.HasPrefix(row[3], "Does not apply: ") {
			t.Errorf("group %d: neither covered nor a reason: %s", group, row[3])
		}
	}
	for group := 1; group <= 52; group++ {
		if groups[group] != 1 {
			t.Errorf("group %d has %d rows", group, groups[group])
		}
	}
	for _, q := range quoted.FindAllSubmatch(text, -1) {
		switch name := string(q[1]); {
		case strings.HasPrefix(name, "Test"), strings.HasPrefix(name, "Fuzz"):
			if !tests[name] {
				t.Errorf("there is no %s", name)
			}
		case strings.Contains(name, "/") &&
			!slices.ContainsFunc(attack.Cases(), func(c attack.Case) bool { return strings.HasPrefix(c.Name, name) }):
			t.Errorf("no attack is called %s", name)
		}
	}
}

// Every case is found from the row of its group.
func TestDocumentHasEveryCase(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[int]string{}
	for _, row := range rowLine.FindAllStringSubmatch(string(text), -1) {
		group, _ := strconv.Atoi(row[1])
		rows[group] = row[3]
	}
	for _, c := range attack.Cases() {
		area, _, _ := strings.Cut(c.Name, "/")
		if !strings.Contains(rows[c.Group], "`"+area+"/") {
			t.Errorf("the row of group %d does not name `%s/`, where %s is", c.Group, area, c.Name)
		}
	}
}

// testNames are all test and fuzz functions of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(bytes.ReplaceAll(source, []byte("\r"), nil), -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
