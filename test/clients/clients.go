// Package clients installs the programs of others that tests run: SDKs, MCP clients, a fuzzer. Each is installed once
// on a machine, into the user's cache directory, so that a fresh clone does not fetch and unpack them again.
package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Commands for Install, run by sh in the directory of the installation.
const (
	// Python installs what requirements.txt names into venv.
	Python = "python3 -m venv venv && venv/bin/python -m pip install --quiet --disable-pip-version-check -r " +
		"requirements.txt"
	// Node installs what package-lock.json names into node_modules.
	Node = "npm ci --no-audit --no-fund --ignore-scripts"
)

// PythonFrom works like Python, with Python 3.minor or a newer one, which need not be the default of the machine: it is
// looked for in PATH and among the versions of pyenv.
func PythonFrom(minor int) string {
	return fmt.Sprintf(`for python in python3 python3.14 python3.13 python3.12 ~/.pyenv/versions/3.*/bin/python3; do
	if "$python" -c 'import sys; sys.exit(sys.version_info < (3, %d))' 2>/dev/null; then
		"$python" -m venv venv
		exec venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	fi
done
echo "this needs Python 3.%d or newer, and there is none in PATH" >&2
exit 1`, minor, minor)
}

// Install copies the files into a directory that is named by their content, runs the command there unless an earlier
// test did, and gives the directory. Files called main.* are the test's own program: they are copied, but do not count
// as content. Test processes take turns.
func Install(t testing.TB, name, command string, files ...string) string {
	t.Helper()
	dir, err := install(name, command, files)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func install(name, command string, files []string) (dir string, err error) {
	sum, contents := sha256.New(), map[string][]byte{}
	for _, f := range files {
		base := filepath.Base(f)
		if contents[base], err = os.ReadFile(f); err != nil {
			return "", err
		}
		if !strings.HasPrefix(base, "main.") {
			fmt.Fprintf(sum, "%s\x00%s\x00", base, contents[base])
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "berth-test", name+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	for base, data := range contents {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, base), data, 0o644))
	}
	if err != nil {
		return "", err
	}
	return dir, installOnce(dir, command)
}

// lock keeps other test processes out of a directory until unlock is called.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// installOnce runs the command, unless it succeeded in this directory before.
func installOnce(dir, command string) error {
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	fmt.Fprintf(os.Stderr, "installing %s, once on this machine\n", dir)
	cmd := exec.Command("sh", "-euc", command)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w; is there npm, and python3-venv?\n%s", command, err, out)
	}
	return os.WriteFile(done, nil, 0o644)
}
