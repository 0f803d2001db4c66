package launch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program returns the path of a fake daemon that ignores SIGTERM and prints says.
func program(t *testing.T, says string) string {
	file := filepath.Join(t.TempDir(), "berth")
	if err := os.WriteFile(file, []byte("#!/bin/sh\ntrap '' TERM\necho '"+says+"' >&2\nexec sleep 60\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

const soon = 300 * time.Millisecond

// A daemon that is never ready is stopped, and its log is available.
func TestStartIsBounded(t *testing.T) {
	p, err := start(program(t, "I hang"), t.TempDir(), nil, nil, soon, soon)
	if p == nil || err == nil || !strings.Contains(err.Error(), "was not ready after 300ms: I hang") {
		t.Fatalf("%v, %v", p, err)
	}
	select {
	case <-p.Exited():
	default:
		t.Error("it runs on")
	}
}

// A daemon that does not end is killed.
func TestStopIsBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "api-key"), []byte("k\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := start(program(t, "berth is ready url=http://x"), dir, nil, nil, time.Minute, soon)
	if err != nil || p.URL != "http://x" || p.Key != "k" {
		t.Fatalf("%+v, %v", p, err)
	}
	began := time.Now()
	if p.stop(syscall.SIGTERM, soon); time.Since(began) < soon {
		t.Error("it ended by itself")
	}
	if p.stop(syscall.SIGTERM, soon); time.Since(began) > time.Minute {
		t.Error("it was waited for")
	}
}
