// Package openapi_test holds the real daemon against its own OpenAPI document, with a fuzzer that neither of them knows.
package openapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/cmd/berth/internal/daemontest"
)

var (
	seconds = flag.Int("openapi.seconds", 60, "how long to fuzz")
	seed    = flag.Int("openapi.seed", 1, "what the fuzzer's choices begin with")
)

// A schema-driven fuzzer finds no 500, no status, header, media type or body that is not in the document, nothing accepted that
// the document forbids, no way around the API key, and nothing to be reached after its deletion. It follows the
// document from one route to the next, so that what it makes is used: containers, their commands, files and jobs.
//
// One of its checks is left out: that whatever the document allows is accepted. Whether a path is a directory, a cursor was given out
// or an archive is whole is not for a schema to say.
func TestDaemonIsAsDocumented(t *testing.T) {
	fuzzer := install(t)
	d, err := daemontest.New("--stop-on-exit", "--exec-timeout=3s", "--max-containers=40", "--idle-timeout=1m")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*seconds)*time.Second+3*time.Minute)
	defer cancel()
	config, err := filepath.Abs(filepath.Join("py", "schemathesis.toml"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, fuzzer, "--config-file", config, "run", d.URL+"/openapi.json",
		"--header", "X-Api-Key: "+d.Key, "--phases", "coverage,fuzzing,stateful", "--exclude-checks", "positive_data_acceptance",
		"--max-time", strconv.Itoa(*seconds), "--max-examples", "15", "--request-timeout", "30", "--seed", strconv.Itoa(*seed),
		"--continue-on-failure", "--no-shrink", "--no-color", "--warnings", "off", "--generation-database", "none")
	cmd.Dir = dir // it leaves its findings where it runs
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !strings.Contains(text, "generated") || len(d.Log()) < 20_000 {
		t.Errorf("the fuzzer hardly did anything; the daemon's log has %d bytes\n%s", len(d.Log()), text)
	}
	for line := range strings.SplitSeq(d.Log(), "\n") {
		if strings.Contains(line, "level=ERROR") {
			t.Errorf("the daemon had an error of its own: %s", line)
		}
	}
	t.Log(text[strings.LastIndex(text, "Test cases:"):])
}

// install puts the fuzzer into .cache, once, and returns its program. Test processes take turns.
func install(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("fuzzing needs python3: apt-get install python3 python3-venv")
	}
	list, err := filepath.Abs(filepath.Join("py", "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(wanted)
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "..", ".cache", "openapi-"+hex.EncodeToString(sum[:6])))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err != nil {
		t.Log("installing the fuzzer into .cache, once")
		cmd := exec.CommandContext(t.Context(), "sh", "-euc",
			`"$0" -m venv venv; venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r "$1"`, python, list)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := os.WriteFile(done, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "venv", "bin", "schemathesis")
}
