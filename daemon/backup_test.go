package daemon_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"
)

// berth runs the program as a client of the server, and returns what it prints.
func (s *server) berth(t *testing.T, args ...string) (string, error) {
	t.Helper()
	bin, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), "BERTH_HOST="+s.URL, "BERTH_API_KEY="+s.Key)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *server) mustBerth(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.berth(t, args...)
	if err != nil {
		t.Fatalf("berth %v: %v\n%s", args, err, out)
	}
	return out
}

// kept is what the containers of TestBackup have before the backup.
type kept struct {
	running, stopped, sealed, file string
	key                            proto.NewKey
}

// fillDaemon makes containers with files, an installed package, a snapshot, a secret, a stored file and a key.
func fillDaemon(t *testing.T, s *server) (k kept) {
	made := func(body string) string {
		c := call[proto.Container](t, s, 201, "POST", "/v1/containers", body)
		t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
		return c.ID
	}
	k.running = made(`{"limits":{"memory_bytes":536870912,"disk_bytes":268435456}}`)
	asRoot(t, s, k.running, installed)
	bash(t, s, k.running, "echo early >/workspace/note; head -c 8000000 /dev/urandom >/workspace/big")
	call[proto.Snapshot](t, s, 201, "POST", "/v1/containers/"+k.running+"/snapshots", `{"name":"backed-up"}`)
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/snapshots/backed-up", nil) })
	res := bash(t, s, k.running, "echo late >/workspace/note; echo result >$OUTPUT_DIR/out.txt")
	if res.Result.Result == nil || len(res.Result.Result.Content) != 1 {
		t.Fatalf("no file was stored: %+v", res.Result)
	}
	k.file = res.Result.Result.Content[0].FileID
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/files/"+k.file, nil) }) // other tests use the daemon, too
	call[json.RawMessage](t, s, 202, "POST", "/v1/containers/"+k.running+"/exec",
		`{"background":true,"command":"while :; do date >>/workspace/log; sleep 0.05; done"}`)

	k.stopped = made(`{"limits":{"memory_bytes":268435456,"disk_bytes":268435456}}`)
	asRoot(t, s, k.stopped, "echo stopped >/etc/kept.conf; echo stopped >/workspace/note")
	call[proto.Container](t, s, 200, "POST", "/v1/containers/"+k.stopped+"/stop", "")

	k.sealed = made(`{"secrets":{"WORD":"opensesame"}}`)
	k.key = call[proto.NewKey](t, s, 201, "POST", "/v1/keys", `{"name":"kept","owner":"kept"}`)
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/keys/"+k.key.ID, nil) })
	return k
}

// asRoot runs a command as root, and returns its output.
func asRoot(t *testing.T, s *server, id, command string) string {
	t.Helper()
	cmd, _ := json.Marshal(proto.Cmd{Command: command, User: proto.UserRoot})
	res := call[proto.ExecResult](t, s, 200, "POST", "/v1/containers/"+id+"/exec", string(cmd))
	if r := res.Result.Result; r == nil || r.ReturnCode != 0 {
		t.Fatalf("in container %s: %+v %+v", id, res.Exec.End, r)
	}
	return res.Result.Result.Stdout
}

// TestBackup backs up a daemon that works, makes another data directory of the backup, and finds everything there.
func TestBackup(t *testing.T) {
	k := fillDaemon(t, base)
	file := filepath.Join(t.TempDir(), "berth.tar.zst")
	var report struct {
		HeldMillis int64 `json:"held_ms"`
		Trees      int
	}
	out := base.mustBerth(t, "backup", "create", "--quiet", "--json", file)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	t.Logf("the ledger took no updates for %d ms; the backup has %d trees", report.HeldMillis, report.Trees)
	bash(t, base, k.running, "echo too late >/workspace/note") // the daemon goes on, and the backup does not have this
	base.mustBerth(t, "backup", "check", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is open to others: %v %v", info.Mode(), err)
	}
	leftOver(t, base)

	dir := filepath.Join(t.TempDir(), "data")
	base.mustBerth(t, "backup", "restore", "--data", dir, file)
	if out, err := base.berth(t, "backup", "restore", "--data", dir, file); err == nil ||
		!strings.Contains(out, "is not empty") {
		t.Errorf("a restore over a daemon's data: %v %s", err, out)
	}
	restored := &server{&daemontest.Daemon{Dir: dir, Flags: base.Flags}}
	t.Cleanup(func() {
		if err := restored.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := restored.Start(); err != nil {
		t.Fatal(err)
	}
	checkRestored(t, restored, k)
	restored.restart(t, syscall.SIGTERM)
	if got := asRoot(t, restored, k.running, foundAgain); got != foundWant {
		t.Errorf("after another start the container has\n%s\nwant\n%s", got, foundWant)
	}
}

// checkRestored checks that a restored daemon has what fillDaemon has made.
func checkRestored(t *testing.T, s *server, k kept) {
	t.Helper()
	for id, want := range map[string]string{k.running: "late\n", k.stopped: "stopped\n"} {
		if got := asRoot(t, s, id, "cat /workspace/note"); got != want {
			t.Errorf("container %s has the note %q, want %q", id, got, want)
		}
	}
	if got := asRoot(t, s, k.running, foundAgain); got != foundWant {
		t.Errorf("the container has\n%s\nwant\n%s", got, foundWant)
	}
	if got := asRoot(t, s, k.stopped, "cat /etc/kept.conf"); got != "stopped\n" {
		t.Errorf("the layer of the stopped container has %q", got)
	}
	if got := asRoot(t, s, k.sealed, "echo ${#WORD}"); got != "10\n" {
		t.Errorf("the secret has the length %q", got)
	}
	if status, out, err := s.Do("GET", "/v1/files/"+k.file+"/content", nil); err != nil || status != 200 ||
		string(out) != "result\n" {
		t.Errorf("the stored file: %d %v %q", status, err, out)
	}
	call[proto.Container](t, s, 200, "POST", "/v1/containers/"+k.running+"/restore", `{"snapshot":"backed-up"}`)
	if got := asRoot(t, s, k.running, "cat /workspace/note"); got != "early\n" {
		t.Errorf("the snapshot has the note %q", got)
	}
	// limits hold again
	res := bash(t, s, k.stopped, "head -c 400000000 /dev/zero >/workspace/zeros")
	if r := res.Result.Result; r == nil || r.ReturnCode == 0 {
		t.Errorf("a container may write more than its limit: %+v", res.Result)
	}
	if out, err := (&server{&daemontest.Daemon{URL: s.URL, Key: k.key.Secret}}).berth(t, "ls"); err != nil {
		t.Errorf("the key is not known: %v %s", err, out)
	}
	s.mustBerth(t, "audit", "verify", "--data", s.Dir)
}

// leftOver checks that nothing of a backup is left in the data directory or the pool.
func leftOver(t *testing.T, s *server) {
	t.Helper()
	for _, name := range []string{"backup-stage", "runtime/pool/backup"} {
		path := filepath.Join("/proc", strconv.Itoa(s.PID()), "root", s.Dir, name)
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("after a backup there is %s: %v", name, err)
		}
	}
}

// TestBackupDamaged checks that damage is found by check, and that a restore of it leaves nothing.
func TestBackupDamaged(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "whole.tar.zst")
	base.mustBerth(t, "backup", "create", file)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)*2/3] ^= 4
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"cut":     {whole[:len(whole)*2/3], "not whole"},
		"flipped": {flipped, "not whole"},
		"other":   {[]byte("PK\x03\x04 something else"), "not a backup"},
		"empty":   {nil, "not a backup"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(dir, name)
			if err := os.WriteFile(bad, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := base.berth(t, "backup", "check", bad); err == nil || !strings.Contains(out, c.want) {
				t.Errorf("check: %v %s, want %q", err, out, c.want)
			}
			data := filepath.Join(dir, name+"-data")
			if out, err := base.berth(t, "backup", "restore", "--data", data, bad); err == nil ||
				!strings.Contains(out, c.want) {
				t.Errorf("restore: %v %s, want %q", err, out, c.want)
			}
			if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
				t.Errorf("a restore that failed has left %v, %v", left, err)
			}
		})
	}
	if out, err := base.berth(t, "backup", "create", file); err == nil || !strings.Contains(out, "exists") {
		t.Errorf("a backup over a file: %v %s", err, out)
	}
}

// TestBackupKilled kills the daemon while it makes a backup. The next one leaves nothing of it.
func TestBackupKilled(t *testing.T) {
	c := create(t, base)
	bash(t, base, c.ID, "head -c 64000000 /dev/urandom >/workspace/big")
	done := make(chan error, 1)
	file := filepath.Join(t.TempDir(), "never.tar.zst")
	go func() { _, err := base.berth(t, "backup", "create", file); done <- err }()
	stage := filepath.Join(base.Dir, "backup-stage", "ledger.db")
	for end := time.Now().Add(time.Minute); ; {
		if _, err := os.Lstat(stage); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the backup has not begun")
		}
	}
	base.restart(t, syscall.SIGKILL)
	if err := <-done; err == nil {
		t.Error("the backup of a killed daemon is taken for whole")
	}
	if _, err := os.Lstat(file); !os.IsNotExist(err) {
		t.Errorf("there is a file of the broken backup: %v", err)
	}
	leftOver(t, base)
	bash(t, base, c.ID, "true")
}
