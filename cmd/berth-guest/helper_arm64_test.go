package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What makes a user namespace is in it, as whom it was told, until its standard input ends, and small.
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
		t.Fatalf("it said nothing: %v", err)
	}
	if uids := strings.Fields(status(t, cmd.Process.Pid)["Uid"]); len(uids) < 2 || uids[1] != fmt.Sprint(owner) {
		t.Errorf("it is user %q", uids)
	}
	if !waits(t, cmd.Process.Pid) {
		t.Error("the Go runtime has begun")
	}
	own, _ := os.Readlink("/proc/self/ns/user")
	made, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil || made == own {
		t.Errorf("its namespace is %s, ours is %s: %v", made, own, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// Where it cannot, it says why by its exit status.
func TestMakerSaysWhyNot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "guest")
	build(t, path)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for who is not root
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: path, Args: []string{helperName}, Env: []string{}, Stdin: strings.NewReader(
		"\x05\x00\x00\x00")}
	// who cannot become another
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if len(out) > 0 || cmd.ProcessState.ExitCode() != int(syscall.EPERM) {
		t.Errorf("it said %q and ended with %v", out, err)
	}
}
