package daemon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/test/needs"
)

// unpacked makes a directory as an unpacked release has it: all programs, and the base image beside them.
func unpacked(t *testing.T) (berth string) {
	t.Helper()
	bin, image := needs.Containers(t)
	dir := t.TempDir()
	entries, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "berth" {
			continue
		}
		if err := os.Symlink(filepath.Join(bin, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(image, filepath.Join(dir, "base.tar")); err != nil {
		t.Fatal(err)
	}
	// The daemon looks for the others beside its own program, so this one is no link.
	if out, err := exec.Command("cp", "-L", filepath.Join(bin, "berth"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "berth")
}

// TestUpAndDown goes from an unpacked release to a command in a container and to a client of the Model Context
// Protocol, by the lines that `berth up` prints.
func TestUpAndDown(t *testing.T) {
	berth := unpacked(t)
	data := filepath.Join(t.TempDir(), "data")
	run := func(want bool, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs strings.Builder
		cmd := exec.Command(berth, args...)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "BERTH_") })
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); (err == nil) != want {
			t.Fatalf("berth %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
		}
		return out.String(), errs.String()
	}
	flags := []string{"--background", "--data", data, "--listen", "127.0.0.1:0", "--stop-on-exit", "--warm-max", "0"}
	t.Cleanup(func() { _ = exec.Command(berth, "down", "--data", data).Run() })

	out, steps := run(true, append([]string{"up"}, flags...)...)
	for _, want := range []string{"checking this machine", "taking over the containers",
		"importing the image base from"} {
		if !strings.Contains(steps, want) {
			t.Errorf("%q is not among the steps:\n%s", want, steps)
		}
	}
	if regexp.MustCompile(`container_|sha256|berth_[A-Za-z0-9]{8}`).MatchString(out) {
		t.Errorf("an ID or a key is in\n%s", out)
	}
	line := func(name string) []string {
		t.Helper()
		m := regexp.MustCompile(`(?m)^` + name + ` +(.*)$`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no line %q in\n%s", name, out)
		}
		return strings.Fields(m[1])
	}
	try := line("try it") // a test has no terminal
	args := append(try[1:len(try)-2], "--rm", "-c", "echo $((6*7))")
	if got, err := exec.Command(try[0], args...).Output(); err != nil || string(got) != "42\n" {
		t.Errorf("%q: %v, %q", args, err, got)
	}
	claude := line("add Claude Code")
	if strings.Join(claude[:5], " ") != "claude mcp add berth --" {
		t.Fatalf("%q", claude)
	}
	mcp := exec.Command(claude[5], claude[6:]...)
	mcp.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":` +
		`"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n")
	if got, err := mcp.Output(); err != nil || !strings.Contains(string(got), `"serverInfo"`) {
		t.Errorf("%q: %v, %s", claude, err, got)
	}

	again, steps := run(true, append([]string{"up"}, flags...)...)
	if again != out || !strings.Contains(steps, "the daemon runs already") || strings.Contains(steps, "starting") {
		t.Errorf("the second call says\n%s%s", again, steps)
	}
	shown, _ := run(true, "config", "show", "--data", data)
	if !regexp.MustCompile(`(?m)^warm-max +0 +--warm-max`).MatchString(shown) {
		t.Errorf("it does not show the flag:\n%s", shown)
	}
	if got, _ := run(true, "down", "--data", data); !strings.Contains(got, "the daemon has ended") {
		t.Errorf("%q", got)
	}
	if got, _ := run(true, "down", "--data", data); !strings.Contains(got, "no daemon runs over "+data) {
		t.Errorf("%q", got)
	}
	// What keeps the daemon from starting is shown.
	if err := os.Chmod(filepath.Join(data, "api-key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, steps := run(false, append([]string{"up"}, flags...)...); !strings.Contains(steps,
		"the daemon ended before it was ready") || !strings.Contains(steps, "others than its owner may use it") {
		t.Errorf("%s", steps)
	}
}
