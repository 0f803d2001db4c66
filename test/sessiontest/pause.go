package sessiontest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"berth/egress"
	"berth/proto"
	"berth/session"
	"berth/session/limits"
)

// Inspect reports no isolation, since these sandboxes have none that counts.
func (rt *Runtime) Inspect(context.Context, string) (proto.Isolation, error) {
	return proto.Isolation{HostUID: -1}, nil
}

// Measure reports nothing, since these sandboxes have no limits.
func (rt *Runtime) Measure(string, string) limits.Reading { return limits.Unknown }

// CPUSeconds returns what SetCPUSeconds has set; there is no cgroup.
func (rt *Runtime) CPUSeconds(id string) float64 {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if seconds, ok := rt.cpu[id]; ok {
		return seconds
	}
	return -1
}

// SetCPUSeconds sets the CPU time that sandbox id has used.
func (rt *Runtime) SetCPUSeconds(id string, seconds float64) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.cpu[id] = seconds
}

// Pause stops every process of a sandbox by signal. It stops the guest first, so the guest starts no more processes.
// A real runtime uses the kernel's freezer, which programs do not see. The core cannot distinguish the two.
func (rt *Runtime) Pause(_ context.Context, id string) error {
	return rt.signalAll(id, syscall.SIGSTOP)
}

// Resume continues the processes, the guest last.
func (rt *Runtime) Resume(_ context.Context, id string) error {
	return rt.signalAll(id, syscall.SIGCONT)
}

// Paused asks the kernel whether the guest is stopped.
func (rt *Runtime) Paused(id string) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	sb := rt.run[id]
	return sb != nil && !sb.ended() && stopped(sb.cmd.Process.Pid)
}

// SetLimits changes nothing, since these sandboxes have no limits.
func (rt *Runtime) SetLimits(context.Context, string, session.Spec, proto.Limits) error { return nil }

// SetHostname changes nothing while a sandbox runs.
func (rt *Runtime) SetHostname(_ context.Context, id, _ string) error {
	return proto.Errorf(proto.Unsupported, "", id, "sandboxes of tests keep their host name")
}

// OpenOutbound opens nothing.
func (rt *Runtime) OpenOutbound(_ context.Context, id string) (egress.Outbound, error) {
	return nil, proto.Errorf(proto.Unsupported, "", id, "sandboxes of tests have no network of their own")
}

func (rt *Runtime) signalAll(id string, sig syscall.Signal) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	sb := rt.run[id]
	if sb == nil || sb.ended() {
		return proto.Errorf(proto.NotFound, "", id, "container %s is not running", id)
	}
	first := sb.cmd.Process.Pid
	if sig == syscall.SIGSTOP {
		_ = syscall.Kill(first, sig)
	}
	// A process that forks while the list is read adds one for the next pass.
	for again := true; again; {
		again = false
		for _, pid := range inNamespaceOf(first) {
			if stopped(pid) != (sig == syscall.SIGSTOP) && syscall.Kill(pid, sig) == nil {
				again = sig == syscall.SIGSTOP
			}
		}
	}
	if sig == syscall.SIGCONT {
		_ = syscall.Kill(first, sig)
		return nil
	}
	// the kernel notifies only its parent
	for end := time.Now().Add(20 * time.Second); !stopped(first); time.Sleep(time.Millisecond) {
		if left := state(first); left == 0 || left == 'Z' {
			return proto.Errorf(proto.NotFound, "", id, "container %s is not running", id)
		}
		if time.Now().After(end) {
			return proto.Errorf(proto.Unavailable, "", id, "container %s does not stand still", id)
		}
	}
	return nil
}

// inNamespaceOf lists the processes in the PID namespace of pid, except pid itself and zombies.
func inNamespaceOf(pid int) (pids []int) {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid") // the pattern is valid
	for _, link := range links {
		other, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(link))))
		if got, errLink := os.Readlink(link); err == nil && errLink == nil && got == space && other != pid &&
			state(other) != 'Z' {
			pids = append(pids, other)
		}
	}
	return pids
}

func stopped(pid int) bool { return state(pid) == 'T' }

// state returns the kernel's letter for the state of a process; 0 if the process is gone.
func state(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, ok := bytes.Cut(stat, []byte(") ")) // no program here has ") " in its name
	if !ok || len(after) == 0 {
		return 0
	}
	return after[0]
}
