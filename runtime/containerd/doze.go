package containerd

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/session"
)

// Dozes asks the kernel. It returns true if the sandbox has a single process, which is then PID 1, and that process
// is the one that waits in the guest's place. See session.Runtime.
func (r *Runtime) Dozes(id string) bool {
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return false
	}
	dir, _ := cgroup.Dir(r.claims.sandbox(id), "pids")
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(list)))
	return err == nil && session.Dozes(pid)
}
