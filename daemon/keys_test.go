package daemon_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"
)

// as sends a request with another key.
func as(t *testing.T, d *daemontest.Daemon, secret, method, path, body string) (int, []byte) {
	t.Helper()
	own := d.Key
	defer func() { d.Key = own }()
	d.Key = secret
	status, out, err := d.Do(method, path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return status, out
}

func newKey(t *testing.T, d *daemontest.Daemon, body string) (k proto.NewKey) {
	t.Helper()
	status, out, err := d.Do("POST", "/v1/keys", strings.NewReader(body))
	if err != nil || status != http.StatusCreated || json.Unmarshal(out, &k) != nil {
		t.Fatalf("%d %s %v", status, out, err)
	}
	return k
}

// TestKeysSurviveAKill checks that acknowledged changes of keys survive a kill right afterwards, and that the key
// file defines the daemon's own key.
func TestKeysSurviveAKill(t *testing.T) {
	d := bare(t)
	keep, gone := newKey(t, d, `{"owner": "ann", "quota": {"sessions": 3}}`), newKey(t, d, `{"owner": "ann"}`)
	if status, out, err := d.Do("DELETE", "/v1/keys/"+gone.ID, nil); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s %v", status, out, err)
	}
	d.Stop(syscall.SIGKILL)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	var self proto.KeyStatus
	if status, out := as(t, d, keep.Secret, "GET", "/v1/keys/self", ""); status != http.StatusOK ||
		json.Unmarshal(out, &self) != nil || self.Quota.Sessions != 3 {
		t.Errorf("the key: %d %s", status, out)
	}
	if status, out := as(t, d, gone.Secret, "GET", "/v1/keys/self", ""); status != http.StatusUnauthorized {
		t.Errorf("the revoked key: %d %s", status, out)
	}
	old := d.Key
	if err := os.WriteFile(filepath.Join(d.Dir, "api-key"), []byte("berth_replaced-by-the-operator\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	d.Stop(syscall.SIGKILL)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if status, out := as(t, d, old, "GET", "/v1/info", ""); status != http.StatusUnauthorized {
		t.Errorf("the replaced key file's: %d %s", status, out)
	}
	if status, out := as(t, d, d.Key, "GET", "/v1/keys", ""); status != http.StatusOK || d.Key == old {
		t.Errorf("the new key file's: %d %s", status, out)
	}
	for _, secret := range []string{keep.Secret, gone.Secret, old} {
		if strings.Contains(d.Log(), secret) {
			t.Error("a key is in the log")
		}
	}
}

// TestTenantInARealContainer checks that a tenant's commands are charged to its key, and that no other key finds
// them.
func TestTenantInARealContainer(t *testing.T) {
	ann, bob := newKey(t, base.Daemon, `{"owner": "ann", "quota": {"sessions": 1}}`),
		newKey(t, base.Daemon, `{"owner": "bob"}`)
	status, out := as(t, base.Daemon, ann.Secret, "POST", "/v1/exec",
		`{"command": "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done"}`)
	var x proto.ExecResult
	if status != http.StatusOK || json.Unmarshal(out, &x) != nil || x.Result.Result == nil {
		t.Fatalf("%d %s", status, out)
	}
	at := "/v1/containers/" + x.Container.ID
	defer as(t, base.Daemon, ann.Secret, "DELETE", at, "")
	for who, secret := range map[string]string{"bob": bob.Secret, "the admin": base.Key} {
		if status, out := as(t, base.Daemon, secret, "POST", at+"/exec",
			`{"command": "true"}`); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", who, status, out)
		}
	}
	var self proto.KeyStatus
	if _, out := as(t, base.Daemon, ann.Secret, "GET", "/v1/keys/self", ""); json.Unmarshal(out, &self) != nil ||
		self.Usage.Sessions != 1 || self.Usage.CPUSecondsToday < 0.01 {
		t.Errorf("%s", out)
	}
	if status, out := as(t, base.Daemon, ann.Secret, "POST", "/v1/containers",
		""); status != http.StatusTooManyRequests {
		t.Errorf("a second container: %d %s", status, out)
	}
}

// TestBackgroundIsCharged checks that CPU time of a process that outlives its command is charged to the command's key,
// as the kernel counts it.
func TestBackgroundIsCharged(t *testing.T) {
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) {
			k := newKey(t, base.Daemon, `{"owner": "default", "quota": {"cpu_seconds_per_day": 3}}`)
			status, out := as(t, base.Daemon, k.Secret, "POST", "/v1/containers",
				`{"limits":{"cpus":1,"memory_bytes":268435456},"runtime_class":"`+string(class)+`"}`)
			var c proto.Container
			if err := json.Unmarshal(out, &c); err != nil || status != http.StatusCreated {
				t.Fatalf("%d %s", status, out)
			}
			defer call[any](t, base, 200, "DELETE", "/v1/containers/"+c.ID, "")
			at := "/v1/containers/" + c.ID + "/exec"
			if status, out = as(t, base.Daemon, k.Secret, "POST", at,
				`{"command":"setsid sh -c 'while :; do :; done' >/dev/null 2>&1 &"}`); status != http.StatusOK {
				t.Fatalf("%d %s", status, out)
			}
			for end := time.Now().Add(time.Minute); ; {
				status, out = as(t, base.Daemon, k.Secret, "POST", at, `{"command":"sleep 0.2"}`)
				if status == http.StatusTooManyRequests {
					break
				}
				if status != http.StatusOK || time.Now().After(end) {
					t.Fatalf("the quota is not used up: %d %s", status, out)
				}
			}
		})
	}
}
