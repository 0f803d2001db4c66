package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
)

// reachable lists what other users of the host may access, as far as the path to it is open. It contains directories
// that containers' roots (unprivileged users on the host) must traverse, and files without secrets. All else belongs
// to root or is below a closed directory.
var reachable = map[string]fs.FileMode{
	"data":              fs.ModeDir | 0o711,
	"data/runtime":      fs.ModeDir | 0o711,
	"data/tls":          fs.ModeDir | 0o755,
	"data/tls/ca.pem":   0o644,
	"data/tls/cert.pem": 0o644,

	"data/url":                            0o644, // client commands find the daemon by it
	"data/runtime/runsc":                  0o755, // a script
	"run":                                 fs.ModeDir | 0o711,
	"run/c":                               fs.ModeDir | 0o711,
	"run/i":                               fs.ModeDir | 0o711, // a container's root finds what is mounted from there
	"run/c/io.containerd.runtime.v2.task": fs.ModeDir | 0o711,
	"run/c/io.containerd.runtime.v2.task/berth": fs.ModeDir | 0o711, // each bundle belongs to its container's group
	"run/d":                  fs.ModeDir | 0o711,
	"run/r":                  fs.ModeDir | 0o711,
	"run/r/berth":            fs.ModeDir | 0o711,
	"run/r/berth/null-netns": 0o444,
}

// TestDataIsRootsAlone checks that files of the daemon are accessible only to root, whatever its umask.
func TestDataIsRootsAlone(t *testing.T) {
	old := syscall.Umask(0)
	d := &server{bare(t, "--tls-self-signed")}
	syscall.Umask(old)
	if err := d.ImportImage("base", os.Getenv("BERTH_BASE_IMAGE")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d.Dir, 0o711); err != nil { // the data directory may exist before the daemon
		t.Fatal(err)
	}
	secret, _ := json.Marshal(proto.CreateContainer{Secrets: map[string]string{"S": "opensesame"}})
	c := call[proto.Container](t, d, 201, "POST", "/v1/containers", string(secret))
	run := call[proto.Exec](t, d, 202, "POST", "/v1/containers/"+c.ID+"/exec",
		`{"command":"echo out; echo made >$OUTPUT_DIR/f","background":true}`)
	call[proto.ExecResult](t, d, 200, "GET", "/v1/containers/"+c.ID+"/execs/"+run.ID+"/result?wait_seconds=30", "")
	onlyReachable(t, d.Dir)

	d.Stop(syscall.SIGTERM)
	hours := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(d.Dir, "ledger.db.1"), hours, hours); err != nil {
		t.Fatal(err)
	}
	syscall.Umask(0o077)
	err := d.Start()
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	bash(t, d, create(t, d).ID, "true")
	onlyReachable(t, d.Dir)
	for _, name := range []string{"api-key", "secret-key", "ledger.db", "ledger.db.1", "ledger.db.2", "audit.log",
		"tls/key.pem", "runtime/pool.img"} {
		if fi, err := os.Stat(filepath.Join(d.Dir, name)); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
	for _, name := range []string{"files", "output", "runtime/ctr", "runtime/pool"} {
		if fi, err := os.Stat(filepath.Join(d.Dir, name)); err != nil || fi.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
	for dir, least := range map[string]int{"output": 1, "files/blobs": 1} {
		n := 0
		_ = filepath.WalkDir(filepath.Join(d.Dir, dir), func(path string, e fs.DirEntry, err error) error {
			if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
				if n++; fi.Mode() != 0o600 {
					t.Errorf("%s: %v", path, fi.Mode())
				}
			}
			return err
		})
		if n < least {
			t.Errorf("%d files in %s, so nothing was looked at", n, dir)
		}
	}
}

// onlyReachable fails the test for files that others can access and should not.
func onlyReachable(t *testing.T, data string) {
	t.Helper()
	sum := sha256.Sum256([]byte(filepath.Join(data, "runtime")))
	seen := 0
	for top, dir := range map[string]string{"data": data, "run": filepath.Join("/run/berth", hex.EncodeToString(
		sum[:8]))} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if os.IsNotExist(err) && path != dir {
				return nil // deleted meanwhile
			}
			if err != nil {
				return err
			}
			fi, err := e.Info()
			if err != nil {
				return nil
			}
			const others = 0o007
			name := top + strings.TrimPrefix(path, dir)
			if fi.Mode().Perm()&others != 0 && fi.Mode().Type() != fs.ModeSymlink {
				if seen++; fi.Mode() != reachable[name] {
					t.Errorf("others may reach %s: %v", name, fi.Mode())
				}
			}
			if fi.IsDir() && fi.Mode().Perm()&0o001 == 0 {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if seen < 3 {
		t.Errorf("%d things looked at", seen)
	}
}
