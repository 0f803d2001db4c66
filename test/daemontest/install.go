package daemontest

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
)

// Install copies files into a directory of .cache that is named by what is in them, and runs a command there, unless
// that was done before. Files that are called main do not count: they are what uses the installation.
func Install(name, command string, files ...string) (dir string, err error) {
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
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, ".cache", "clients", name+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, "lock")) // test processes take turns
	if err == nil {
		defer lock.Close()
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	for base, data := range contents {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, base), data, 0o644))
	}
	if err != nil {
		return "", err
	}
	return dir, once(dir, command)
}

// once runs a command in a directory, if it has not succeeded there before.
func once(dir, command string) error {
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	fmt.Fprintf(os.Stderr, "installing into %s, once\n", filepath.Base(dir))
	cmd := exec.Command("sh", "-euc", command)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w; is there npm, and python3-venv?\n%s", command, err, out)
	}
	return os.WriteFile(done, nil, 0o644)
}

// moduleRoot is the directory of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.Join(err, errors.New("there is no go.mod above the test"))
}
