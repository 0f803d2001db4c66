package daemon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"berth/proto"

	"golang.org/x/sys/unix"
)

// sameEnv is the environment of commands in both places. The working directory is the job's directory in the
// container and an empty one on the host.
var sameEnv = map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
	"HOME": "/tmp", "TZ": "UTC"}

// TestInsideIsAsOutside checks that scripts behave the same in a container of either class and in the host's bash on
// the host's kernel: the same bytes on both streams and the same code. The scripts cover text tools, redirections,
// signals, arithmetic, files, pipes, Unicode, large arguments, processes and Python.
//
// They leave out known differences of gVisor: the error numbers for names of more than 255 bytes and arguments of
// more than 128 KiB.
func TestInsideIsAsOutside(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("testdata", "differential", "*.sh"))
	if err != nil || len(scripts) < 10 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) {
			c := call[proto.Container](t, base, 201, "POST", "/v1/containers", fmt.Sprintf(`{"runtime_class":%q}`,
				class))
			t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/containers/"+c.ID, nil) })
			for _, path := range scripts {
				t.Run(strings.TrimSuffix(filepath.Base(path), ".sh"), func(t *testing.T) {
					text, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					script := "mkdir empty && cd empty\n" + string(text)
					want, got := outside(t, class, script), inside(t, c.ID, script)
					if got != want {
						t.Errorf("inside and outside differ:\n%s", difference(t, want, got))
					}
				})
			}
		})
	}
}

// outcome returns a script's visible result: its marked streams and its code.
func outcome(stdout, stderr string, code int) string {
	return fmt.Sprintf("%s--- stderr\n%s--- code %d\n", stdout, stderr, code)
}

// outside runs a script on the host, as an unprivileged user in an empty directory. A command under gVisor starts with
// niceness 0, and with runc it has that of the daemon, which is this process.
func outside(t *testing.T, class proto.RuntimeClass, text string) string {
	t.Helper()
	if class == proto.ClassGVisor {
		runtime.LockOSThread() // a child has the niceness of the thread that starts it
		defer runtime.UnlockOSThread()
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		niceness := 20 - raw // the system call returns 1 to 40
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 0); err != nil {
			t.Fatal(err)
		}
		defer unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	}
	dir, err := os.MkdirTemp("", "berth-outside-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	heard := make(chan os.Signal, 1) // a signal that this process handles is not ignored in a child, even under nohup
	signal.Notify(heard, syscall.SIGHUP)
	defer signal.Stop(heard)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", text)
	for k, v := range sameEnv {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}, Setsid: true}
	code := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return outcome(stdout.String(), stderr.String(), code)
}

// inside runs a script in a container through the API, in its own job.
func inside(t *testing.T, container, text string) string {
	t.Helper()
	body, _ := json.Marshal(proto.Cmd{Command: text, Env: sameEnv, JobID: strings.ToLower(filepath.Base(t.Name())),
		MaxOutputBytes: 8 << 20})
	res := call[proto.ExecResult](t, base, 200, "POST", "/v1/containers/"+container+"/exec", string(body))
	r := res.Result.Result
	if r == nil {
		t.Fatalf("it ended as %+v", res.Exec.End)
	}
	return outcome(r.Stdout, r.Stderr, r.ReturnCode)
}

// difference returns the output of diff for two texts.
func difference(t *testing.T, want, got string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"outside": want, "inside": got} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("diff", "outside", "inside")
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput() // the status only says that they differ
	return string(out)
}
