package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestMakesUserNamespace checks that the helper stays in its namespace as the requested user until its standard input
// ends, and that the Go runtime does not start.
func TestMakesUserNamespace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guest")
	build(t, path)
	cmd := &exec.Cmd{Path: path, Args: []string{helperName}, Env: []string{}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, unless the test failed
	const owner = 100_000
	if _, err := in.Write(binary.NativeEndian.AppendUint32(nil, owner)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatalf("the helper does not answer: %v", err)
	}
	if uids := strings.Fields(status(t, cmd.Process.Pid)["Uid"]); len(uids) < 2 || uids[1] != fmt.Sprint(owner) {
		t.Errorf("the helper runs as user %q", uids)
	}
	if !waits(t, cmd.Process.Pid) {
		t.Error("the Go runtime has started")
	}
	own, _ := os.Readlink("/proc/self/ns/user")
	made, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil || made == own {
		t.Errorf("its namespace is %s, that of the test %s: %v", made, own, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the helper ended with %v", err)
	}
}

// TestMakerSaysWhyNot checks that the exit status is the number of the error.
func TestMakerSaysWhyNot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "guest")
	build(t, path)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the helper runs as another user
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: path, Args: []string{helperName}, Env: []string{}, Stdin: strings.NewReader(
		"\x05\x00\x00\x00")}
	// a user who may not become another one
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if len(out) > 0 || cmd.ProcessState.ExitCode() != int(syscall.EPERM) {
		t.Errorf("the helper wrote %q and ended with %v", out, err)
	}
}

// waits reports whether the process has nearly no memory and one thread.
func waits(t *testing.T, pid int) bool {
	t.Helper()
	fields := status(t, pid)
	// /proc lacks the field during an exec
	anon, err := strconv.Atoi(strings.TrimSuffix(fields["RssAnon"], " kB"))
	return err == nil && anon <= 16 && fields["Threads"] == "1"
}
