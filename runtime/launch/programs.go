package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/runtime/diskpool"
)

// A Class says how sandboxes of a runtime class are run.
type Class struct {
	Binary  string // the program that the daemon, or the shim, executes
	Version string // of runc or runsc
	Missing string // why the class is not available; empty if it is
}

// RuncClass accepts runc 1.2 or newer. A sandbox can make older versions overwrite their own program file.
func RuncClass(dir string) Class {
	info := Class{Binary: filepath.Join(dir, "runc")}
	info.Version, info.Missing = ProgramVersion(info.Binary, "runc")
	if info.Missing == "" && !AtLeast(info.Version, 1, 2) {
		info.Missing = fmt.Sprintf("runc %s is too old, 1.2 is the least", info.Version)
	}
	return info
}

// loopbackAlone gives a sandbox of gVisor a stack with loopback alone.
const loopbackAlone = "--network=none"

// gvisorFlags go before every command of runsc, with a flag for the network:
//
//   - host-uds=create: the guest's socket appears on the host. It is no more than that: sockets of
//     the host cannot be opened from inside;
//   - overlay2=none: writes reach our layer, where the disk limit is, not a file beside it;
//   - platform=systrap: needs neither KVM nor a capability;
//   - oci-seccomp: our filter also holds inside, in front of gVisor's kernel.
//
// directfs stays on, which is runsc's default: the kernel opens files itself, in a user namespace of its own. Without
// it, the kernel has no user namespace, and the gofer opens each file.
//
// Everything from the host is one tree for runsc and it caches what it sees there, so a workspace
// that two gVisor sandboxes have at the same time may look different in each for a while.
var gvisorFlags = []string{
	"--host-uds=create", "--overlay2=none", "--platform=systrap", "--oci-seccomp",
}

// GvisorClass writes the script by which the shim runs runsc. The shim can be given the name of a program, but no
// flags for it.
func GvisorClass(dir, data string) (Class, error) {
	runsc := filepath.Join(dir, "runsc")
	info := Class{Binary: filepath.Join(data, "runsc")}
	info.Version, info.Missing = ProgramVersion(runsc, "runsc")
	if info.Missing != "" {
		return info, nil
	}
	flags := strings.Join(slices.Concat(gvisorFlags, []string{loopbackAlone}), " ")
	script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", shellQuote(runsc), flags)
	if err := diskpool.ReplaceFile(info.Binary, []byte(script), 0o755); err != nil {
		return info, fmt.Errorf("writing the runsc script: %w", err)
	}
	return info, nil
}

// ProgramVersion returns what "name --version" prints, or why the program cannot be run.
func ProgramVersion(path, name string) (version, missing string) {
	if err := Executable(path); err != nil {
		target := "runtimes"
		if name == "runsc" {
			target = "gvisor"
		}
		return "", name + " is missing from the program directory; build it with make " + target
	}
	out, err := exec.CommandContext(context.Background(), path, "--version").Output()
	if err != nil {
		return "", name + " does not run on this machine: " + err.Error()
	}
	first, _, _ := strings.Cut(string(out), "\n")
	_, version, ok := strings.Cut(first, "version ")
	if !ok {
		return "", name + " does not tell its version"
	}
	return strings.TrimSpace(version), ""
}

// AtLeast reports whether version is major.minor or newer.
func AtLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	maj, err1 := strconv.Atoi(parts[0])
	minr, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return maj > major || maj == major && minr >= minor
}

// Executable returns an error that says why path cannot be run, or nil.
func Executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not a program", path)
	}
	return nil
}

// shellQuote quotes s as one word for the shell: program directories may have spaces.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
