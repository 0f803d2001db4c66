package daemon_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"

	"golang.org/x/sys/unix"
)

// besideDisk returns a daemon whose own files are on a small disk. Its containers are on another disk, which is not
// filled.
func besideDisk(t *testing.T, small string) *server {
	t.Helper()
	d := &daemontest.Daemon{Dir: filepath.Join(small, "data"), Flags: []string{"--stop-on-exit", "--sweep-every", "1s"}}
	runtime := filepath.Join(d.Dir, "runtime")
	if err := os.MkdirAll(runtime, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "--bind", t.TempDir(), runtime).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	t.Cleanup(func() {
		d.Stop(syscall.SIGTERM)
		if err := unix.Unmount(runtime, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if err := d.ImportImage("base", os.Getenv("BERTH_BASE_IMAGE")); err != nil {
		t.Fatal(err)
	}
	return &server{d}
}

// leave fills a disk except for room bytes. free makes room again.
func leave(t *testing.T, dir string, room int64) (free func()) {
	t.Helper()
	free = fill(t, dir)
	path := filepath.Join(dir, "filler")
	fi, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, fi.Size()-room)
	}
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// A ledgerOf records the answers of a daemon whose disk is sometimes full.
type ledgerOf struct {
	*server
	containers, files map[string]bool   // true: must exist; false: may exist, after a refused deletion
	keys              map[string]string // ID to secret
	revoked           []string
	execs             map[string]string // exec to container
	expires           time.Time         // expiry of main
	main              string
	refused           int
}

// diskSteps are the free bytes on the disk in each step. At each size, other writes of the daemon fail.
var diskSteps = []int64{0, 4 << 10, 8 << 10, 12 << 10, 20 << 10, 32 << 10, 64 << 10, 128 << 10, 512 << 10}

// TestDiskFullAtEveryWrite makes each write of the daemon fail for lack of space. The answer must be that error, or
// the operation must be done. With room again, exactly the acknowledged items exist, and none is incomplete.
func TestDiskFullAtEveryWrite(t *testing.T) {
	small := smallDisk(t, 64)
	s := besideDisk(t, small)
	b := &ledgerOf{server: s, containers: map[string]bool{}, files: map[string]bool{}, keys: map[string]string{},
		execs: map[string]string{}}
	b.main = b.try(t, http.StatusCreated, "POST", "/v1/containers", "{}")
	b.containers[b.main] = true
	for n, room := range diskSteps {
		b.step(t, n, small, room)
		if t.Failed() {
			t.Fatalf("with room for %d bytes", room)
		}
	}
	if b.refused == 0 {
		t.Error("the disk was never full")
	}
	s.restart(t, syscall.SIGKILL)
	b.check(t)
}

func (b *ledgerOf) step(t *testing.T, n int, small string, room int64) {
	victim, file := b.create(t), b.upload(t, -1-n)
	key := b.newKey(t)
	work := []func(){
		func() { b.remove(t, "/v1/containers/", victim, b.containers) },
		func() { b.remove(t, "/v1/files/", file, b.files) },
		func() { b.revoke(t, key) },
		func() { b.extend(t, 1000*(n+1)) },
		func() { b.background(t) },
		func() { b.upload(t, n) },
		func() { b.newKey(t) },
		func() { b.create(t) },
	}
	free := leave(t, small, room)
	for i := range work {
		work[(i+n)%len(work)]()
	}
	if status, _, err := b.Do("GET", "/healthz", nil); err != nil || status != http.StatusOK {
		t.Errorf("health: %d %v", status, err)
	}
	free()
	b.untilRoomIsSeen(t, b.main)
	b.check(t)
}

// try sends a request that may fail for lack of space. It returns the ID in the answer, or "" if the request was
// refused.
func (b *ledgerOf) try(t *testing.T, want int, method, path, body string) string {
	t.Helper()
	status, out, err := b.Do(method, path, strings.NewReader(body))
	return b.answer(t, want, method+" "+path, status, out, err)
}

func (b *ledgerOf) answer(t *testing.T, want int, what string, status int, out []byte, err error) string {
	t.Helper()
	var a struct {
		ID    string
		Error struct{ Code string }
	}
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	switch {
	case err == nil && status == want:
		return a.ID
	case err != nil || status != http.StatusInsufficientStorage && status != http.StatusServiceUnavailable &&
		status != 529:
		t.Errorf("%s: %d %v %.300s", what, status, err, out)
	}
	b.refused++
	return ""
}

func (b *ledgerOf) create(t *testing.T) string {
	id := b.try(t, http.StatusCreated, "POST", "/v1/containers",
		`{"limits":{"memory_bytes":134217728,"disk_bytes":67108864}}`)
	if id != "" {
		b.containers[id] = true
	}
	return id
}

// content returns the content of the n-th file.
func content(n int) string { return strings.Repeat(fmt.Sprint(n, " "), 10_000) }

func (b *ledgerOf) upload(t *testing.T, n int) string {
	status, out, err := b.uploadFile(fmt.Sprint(n), content(n))
	id := b.answer(t, http.StatusOK, "uploading", status, out, err)
	if id != "" {
		b.files[id] = true
	}
	return id
}

func (b *ledgerOf) newKey(t *testing.T) string {
	status, out, err := b.Do("POST", "/v1/keys", strings.NewReader(`{"owner":"small"}`))
	id := b.answer(t, http.StatusCreated, "making a key", status, out, err)
	var k proto.NewKey
	if id != "" && json.Unmarshal(out, &k) == nil {
		b.keys[id] = k.Secret
	}
	return id
}

func (b *ledgerOf) revoke(t *testing.T, id string) {
	if b.try(t, http.StatusOK, "DELETE", "/v1/keys/"+id, "") != "" {
		b.revoked = append(b.revoked, b.keys[id])
		delete(b.keys, id)
	}
}

// remove deletes an item. After a refusal the item may or may not exist.
func (b *ledgerOf) remove(t *testing.T, path, id string, from map[string]bool) {
	if from[id] = false; b.try(t, http.StatusOK, "DELETE", path+id, "") != "" {
		delete(from, id)
	}
}

func (b *ledgerOf) extend(t *testing.T, seconds int) {
	status, out, err := b.Do("POST", "/v1/containers/"+b.main+"/extend", strings.NewReader(
		fmt.Sprintf(`{"seconds":%d}`, seconds)))
	var c proto.Container
	if b.answer(t, http.StatusOK, "extending", status, out, err) != "" && json.Unmarshal(out, &c) == nil {
		b.expires = c.ExpiresAt.Time
	}
}

func (b *ledgerOf) background(t *testing.T) {
	if id := b.try(t, http.StatusAccepted, "POST", "/v1/containers/"+b.main+"/exec",
		`{"command":"head -c 20000 /dev/zero | tr '\\0' x","background":true}`); id != "" {
		b.execs[id] = b.main
	}
}

// check compares the answers with the daemon's state.
func (b *ledgerOf) check(t *testing.T) {
	t.Helper()
	b.same(t, "/v1/containers?limit=1000", b.containers)
	b.same(t, "/v1/files?limit=1000", b.files)
	for id := range b.files {
		if status, out, err := b.Do("GET", "/v1/files/"+id+"/content", nil); err != nil || status != http.StatusOK ||
			len(out) < 10_000 || string(out) != strings.Repeat(string(out[:strings.Index(string(out), " ")+1]),
			10_000) {
			t.Errorf("file %s: %d %v, %d bytes", id, status, err, len(out))
		}
	}
	for id, secret := range b.keys {
		if status, _ := as(t, b.Daemon, secret, "GET", "/v1/keys/self", ""); status != http.StatusOK {
			t.Errorf("key %s answers %d", id, status)
		}
	}
	for _, secret := range b.revoked {
		if status, _ := as(t, b.Daemon, secret, "GET", "/v1/keys/self", ""); status != http.StatusUnauthorized {
			t.Errorf("a revoked key answers %d", status)
		}
	}
	for exec, id := range b.execs {
		if reason := told(t, b.server, id, exec); reason != proto.EndExit {
			t.Errorf("exec %s ended as %s", exec, reason)
		}
	}
	if c := call[proto.Container](t, b.server, 200, "GET", "/v1/containers/"+b.main, ""); c.ExpiresAt.Before(
		b.expires) {
		t.Errorf("it was promised until %v and has %v", b.expires, c.ExpiresAt)
	}
	b.setAside(t, 0)
	blobs, _ := os.ReadDir(filepath.Join(b.Dir, "files", "blobs"))
	if len(blobs) != len(b.files) {
		t.Errorf("%d contents of %d files", len(blobs), len(b.files))
	}
	// output is stored after the end of a command is reported
	eventually(t, "nothing temporary is left", func() bool { return b.temporary() == "" })
	if out, err := auditCLI(t, b.server, "verify", "--data", b.Dir); err != nil {
		t.Errorf("the audit log: %v %s", err, out)
	}
}

// same waits until a list has all items that must exist and no item that must not. It takes uncertain items from the
// list.
func (b *ledgerOf) same(t *testing.T, path string, want map[string]bool) {
	t.Helper()
	have := map[string]bool{}
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		clear(have)
		for _, item := range call[struct{ Data []struct{ ID string } }](t, b.server, 200, "GET", path, "").Data {
			have[item.ID] = true
		}
		missing := slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(id string) bool {
			return want[id] &&
				!have[id]
		})
		unknown := slices.ContainsFunc(slices.Collect(maps.Keys(have)), func(id string) bool {
			_, known := want[id]
			return !known
		})
		if !missing && !unknown {
			clear(want)
			maps.Copy(want, have)
			return
		}
	}
	t.Errorf("%s: have %v, want %v", path, have, want)
}
