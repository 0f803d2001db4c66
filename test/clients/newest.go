package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A Package is a client of others of which tests use the newest version, beside a pinned one.
type Package struct {
	Name    string // name in the registry
	Newest  string // command that prints the newest version, alone or as "name (version)"
	Install string // command that installs the version $VERSION into the current directory
}

// NPM returns a package for Node.
func NPM(name string) Package {
	return Package{Name: name, Newest: "npm view " + name + " version",
		Install: `echo '{"private": true}' >package.json; npm install --no-audit --no-fund --no-save --ignore-scripts ` +
			name + `@"$VERSION"`}
}

// PyPI returns a package for Python.
func PyPI(name string) Package {
	return Package{Name: name, Newest: "python3 -m pip index versions --disable-pip-version-check " + name,
		Install: "python3 -m venv venv && venv/bin/python -m pip install --quiet --disable-pip-version-check " + name +
			`=="$VERSION"`}
}

// InstallNewest installs the newest version of a package and copies the files, the test's own programs, beside it. It
// removes earlier versions. If the registry cannot be asked, it takes the version that an earlier test installed.
func InstallNewest(t testing.TB, p Package, files ...string) (dir, version string) {
	t.Helper()
	parent, err := newestDir(p)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	version, err = p.newest()
	if err != nil {
		if version = installed(parent); version == "" {
			t.Fatalf("the newest version of %s is not known, and none is installed: %v", p.Name, err)
		}
		t.Logf("the newest version of %s is not known, so the last one installed is used: %v", p.Name, err)
	}
	dir = filepath.Join(parent, version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := installOnce(dir, "VERSION="+version+"; "+p.Install); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := removeOthers(parent, version); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %s", p.Name, version)
	return dir, version
}

// newestDir returns the directory of a package's versions.
func newestDir(p Package) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "berth-test", "newest-"+strings.Trim(strings.ReplaceAll(p.Name, "/", "-"), "@"))
	return dir, os.MkdirAll(dir, 0o755)
}

// versionNumber matches a version at the end of a word, or in brackets.
var versionNumber = regexp.MustCompile(`\d+\.\d+[0-9A-Za-z.+-]*`)

// newest asks the registry.
func (p Package) newest() (string, error) {
	cmd := exec.Command("sh", "-euc", p.Newest)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.Newest, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if version := versionNumber.FindString(line); version != "" {
		return version, nil
	}
	return "", fmt.Errorf("%s prints no version: %.200q", p.Newest, out)
}

// installed returns the version that is installed completely, or "".
func installed(parent string) string {
	done, _ := filepath.Glob(filepath.Join(parent, "*", "installed")) // fails only for a bad pattern
	if len(done) == 0 {
		return ""
	}
	return filepath.Base(filepath.Dir(slices.Max(done)))
}

// removeOthers removes all versions but one.
func removeOthers(parent, version string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != version {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
