package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"
)

// These tests break parts that the daemon depends on. They check that sessions and files survive, and that losses are
// reported as losses.

// processes returns the processes of a sandbox that match a condition on command line and cgroup.
func (s *server) processes(id string, is func(cmdline string) bool) []int {
	var found []int
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		cmd, _ := os.ReadFile(p + "/cmdline")
		cgroup, _ := os.ReadFile(p + "/cgroup")
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && len(cmd) > 0 &&
			bytes.Contains(append(cmd, cgroup...), []byte(id)) && is(string(cmd)) {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found
}

func (s *server) shims(id string) []int {
	return s.processes(id, func(cmd string) bool {
		return strings.Contains(cmd, "containerd-shim-runc-v2") && strings.Contains(cmd, s.rundir())
	})
}

// kernels returns gVisor's kernel of a container.
func (s *server) kernels(id string) []int {
	return s.processes(id, func(cmd string) bool { return strings.HasPrefix(cmd, "runsc-sandbox") })
}

// inside returns the processes in a container, the guest first.
func (s *server) inside(id string) []int {
	return s.processes(id, func(cmd string) bool { return !strings.Contains(cmd, "containerd-shim-runc-v2") })
}

func kill(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Fatal("there is nothing to kill")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one may end because of another
	}
}

func createClass(t *testing.T, s *server, class proto.RuntimeClass) proto.Container {
	t.Helper()
	c := call[proto.Container](t, s, 201, "POST", "/v1/containers",
		fmt.Sprintf(`{"runtime_class":%q,"limits":{"memory_bytes":268435456,"disk_bytes":268435456}}`, class))
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	return c
}

// begun returns a background command that has printed a line and still runs.
func begun(t *testing.T, s *server, id string) proto.Exec {
	t.Helper()
	x := call[proto.Exec](t, s, 202, "POST", "/v1/containers/"+id+"/exec",
		`{"command":"echo begun; sleep 1000","background":true}`)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if call[proto.Exec](t, s, 200, "GET", "/v1/containers/"+id+"/execs/"+x.ID, "").StdoutBytes > 0 {
			return x
		}
	}
	t.Fatal("the command does not begin")
	return x
}

// becomes waits for a container's state without using the container.
func becomes(t *testing.T, s *server, id string, state proto.State) {
	t.Helper()
	var c proto.Container
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if c = call[proto.Container](t, s, 200, "GET", "/v1/containers/"+id, ""); c.State == state {
			return
		}
	}
	t.Fatalf("container %s is %s, want %s", id, c.State, state)
}

// told returns how an exec ended.
func told(t *testing.T, s *server, container, id string) proto.EndReason {
	t.Helper()
	res := call[proto.ExecResult](t, s, 200, "GET", "/v1/containers/"+container+"/execs/"+id+"/result?wait_seconds=30",
		"")
	if res.Exec.End == nil {
		t.Fatalf("exec %s has no end", id)
	}
	return res.Exec.End.Reason
}

func holdsNote(t *testing.T, s *server, id, want string) {
	t.Helper()
	if r := bash(t, s, id, "cat /workspace/note").Result.Result; r == nil || r.Stdout != want+"\n" {
		t.Errorf("container %s: the note is %+v, want %q", id, r, want)
	}
}

func TestKilledUnderIt(t *testing.T) {
	s := base
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		for name, victims := range map[string]func(string) []int{
			"guest":  func(id string) []int { return s.inside(id)[:1] },
			"kernel": s.kernels,
			"all":    s.inside,
		} {
			if class == proto.ClassRunc && name == "kernel" {
				continue // it has no end
			}
			t.Run(string(class)+" "+name, func(t *testing.T) {
				c := createClass(t, s, class)
				bash(t, s, c.ID, "echo kept >/workspace/note")
				x := begun(t, s, c.ID)
				first := s.sandbox(t, c.ID)
				kill(t, victims(first))
				becomes(t, s, c.ID, proto.StateStopped) // under gVisor, the gofer or the kernel ends the other one
				if reason := told(t, s, c.ID, x.ID); reason != proto.EndLost {
					t.Errorf("the command ended as %s, want lost", reason)
				}
				holdsNote(t, s, c.ID, "kept")
				second := s.sandbox(t, c.ID)
				call[any](t, s, 200, "POST", "/v1/containers/"+c.ID+"/stop", "")
				holdsNote(t, s, c.ID, "kept")
				third := s.sandbox(t, c.ID)
				call[any](t, s, 200, "DELETE", "/v1/containers/"+c.ID, "")
				for _, sandbox := range []string{first, second, third} {
					if left := append(s.shims(sandbox), s.inside(sandbox)...); len(left) > 0 {
						t.Errorf("processes are left: %v", left)
					}
				}
			})
		}
	}
}

// fresh starts a separate daemon for faults that the shared one must not suffer.
func fresh(t *testing.T, flags ...string) *server {
	t.Helper()
	d, err := daemontest.New(append(flags, "--stop-on-exit", "--sweep-every", "1s")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &server{d}
}

// noteIn creates a container with a file that holds a note.
func noteIn(t *testing.T, s *server, class proto.RuntimeClass) string {
	c := createClass(t, s, class)
	bash(t, s, c.ID, "echo kept >/workspace/note")
	return c.ID
}

// TestReboot simulates a reboot: all processes end, /run is empty, no mount is left, and the kernel has a new boot
// ID.
func TestReboot(t *testing.T) {
	s := base
	var ids, execs []string
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		ids = append(ids, noteIn(t, s, class))
		execs = append(execs, begun(t, s, ids[len(ids)-1]).ID)
	}
	stored := storedFile(t, s, "content")
	if err := s.LoseHost(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if c := call[proto.Container](t, s, 200, "GET", "/v1/containers/"+id, ""); c.State != proto.StateStopped {
			t.Errorf("container %s is %s", id, c.State)
		}
		if reason := told(t, s, id, execs[i]); reason != proto.EndHostRestart {
			t.Errorf("the command ended as %s, want host_restart", reason)
		}
		holdsNote(t, s, id, "kept")
	}
	if status, out, err := s.Do("GET", "/v1/files/"+stored+"/content", nil); err != nil || status != 200 ||
		string(out) != "content" {
		t.Errorf("the stored file: %d %v %s", status, err, out)
	}
}

func storedFile(t *testing.T, s *server, content string) string {
	t.Helper()
	status, out, err := s.uploadFile("f.txt", content)
	var f struct{ ID string }
	if err != nil || status != 200 || json.Unmarshal(out, &f) != nil {
		t.Fatalf("uploading: %d %v %s", status, err, out)
	}
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/files/"+f.ID, nil) })
	return f.ID
}

// TestContainerdMetadataGone deletes containerd's database of images and sandboxes. The workspaces stay, and the
// image has to be imported again.
func TestContainerdMetadataGone(t *testing.T) {
	s := fresh(t)
	running, stopped := noteIn(t, s, proto.ClassRunc), noteIn(t, s, proto.ClassRunc)
	call[any](t, s, 200, "POST", "/v1/containers/"+stopped+"/stop", "")
	s.Stop(syscall.SIGKILL)
	meta := filepath.Join(s.Dir, "runtime", "ctr", "io.containerd.metadata.v1.bolt", "meta.db")
	if err := os.Remove(meta); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	status, out, err := s.Do("POST", "/v1/containers/"+stopped+"/start", nil)
	if err != nil || status != 404 || !strings.Contains(string(out), "import") {
		t.Errorf("without its image a container answers %d %v %s", status, err, out)
	}
	if err := s.ImportImage("base", os.Getenv("BERTH_BASE_IMAGE")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{running, stopped} {
		holdsNote(t, s, id, "kept")
		call[any](t, s, 200, "POST", "/v1/containers/"+id+"/stop", "")
		holdsNote(t, s, id, "kept")
		call[any](t, s, 200, "DELETE", "/v1/containers/"+id, "")
	}
}
