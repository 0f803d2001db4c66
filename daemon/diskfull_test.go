package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
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

	"golang.org/x/sys/unix"
)

// smallDisk mounts a real file system of the given size in MiB, on a file, for one test.
func smallDisk(t *testing.T, mib int64) string {
	t.Helper()
	dir := t.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "at")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, mib<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mkdir", at},
		{"mount", "-o", "loop", image, at}, {"chmod", "755", dir, at}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return at
}

// fill fills a file system to the last byte. free makes room again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(0)
	for size := int64(1 << 30); size >= 1024; {
		if err := unix.Fallocate(int(f.Fd()), 0, at, size); err != nil {
			size /= 2
			continue
		}
		at += size
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiskFull fills the disk of the data directory while the daemon works. Writes are refused with their own code,
// and the daemon survives. With room again, everything works and all acknowledged data is there.
func TestDiskFull(t *testing.T) {
	s := onDisk(t, smallDisk(t, 2600))
	c := createClass(t, s, proto.ClassRunc)
	bash(t, s, c.ID, "echo kept >/workspace/note")
	stored := storedFile(t, s, "content")
	free := fill(t, s.Dir)
	s.refusedFull(t, c.ID, 0)
	pool := s.fullPool(t)
	if err := unix.Syncfs(int(pool.Fd())); err != nil {
		t.Logf("what was accepted before the daemon had seen it: %v", err)
	}
	for n := range 3 {
		s.refusedFull(t, c.ID, n)
		if err := unix.Syncfs(int(pool.Fd())); err != nil { // as the kernel does every 30 s
			t.Errorf("containers' files are lost: %v", err)
		}
	}
	pool.Close() // an open file would keep the file system mounted
	if status, _, err := s.Do("GET", "/healthz", nil); err != nil || status != 200 {
		t.Errorf("health: %d %v", status, err)
	}
	free()
	s.untilRoomIsSeen(t, c.ID)
	s.roomyPool(t)
	s.worksAgain(t, c.ID, stored)
	free = fill(t, s.Dir) // the daemon also starts on a full disk, as after a reboot
	s.Stop(syscall.SIGKILL)
	err := s.Start()
	free()
	if err != nil {
		if !strings.Contains(err.Error(), "space") {
			t.Errorf("starting on a full disk: %v", err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	s.untilRoomIsSeen(t, c.ID)
	s.roomyPool(t)
	s.worksAgain(t, c.ID, stored)
}

func onDisk(t *testing.T, dir string) *server {
	t.Helper()
	d := &daemontest.Daemon{Dir: filepath.Join(dir, "data"), Flags: []string{"--stop-on-exit", "--sweep-every", "1s"}}
	if err := os.Mkdir(d.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
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

// refusedFull tries every kind of write. A write may succeed if it finds room; otherwise the error is that of a full
// disk.
func (s *server) refusedFull(t *testing.T, id string, n int) {
	t.Helper()
	big := strings.Repeat("x", 4<<20)
	for what, try := range map[string]func() (int, []byte, error){
		"creating": func() (int, []byte, error) { return s.Do("POST", "/v1/containers", strings.NewReader(`{}`)) },
		"extending": func() (int, []byte, error) {
			return s.Do("POST", "/v1/containers/"+id+"/extend", strings.NewReader(
				fmt.Sprintf(`{"seconds":%d}`, 1000+n)))
		},
		"uploading": func() (int, []byte, error) { return s.uploadFile("big", big+fmt.Sprint(n)) },
		"writing": func() (int, []byte, error) {
			return s.Do("PUT", "/v1/containers/"+id+"/fs/content?path=/workspace/big",
				io.MultiReader(strings.NewReader(big)))
		},
		"running": func() (int, []byte, error) {
			return s.Do("POST", "/v1/containers/"+id+"/exec", strings.NewReader(
				`{"command":"head -c 4M /dev/urandom >/workspace/more; sync /workspace/more"}`))
		},
	} {
		status, out, err := try()
		var e struct {
			Error struct{ Code, Message string }
		}
		_ = json.Unmarshal(out, &e)
		if err != nil || status >= 300 && (status != 507 || e.Error.Code != string(proto.QuotaExceeded)) &&
			status != 503 && (what != "uploading" || status != 529) {
			t.Errorf("%s on a full disk: %d %v %.300s", what, status, err, out)
		}
	}
}

// pool opens the file system of the containers.
func (s *server) pool(t *testing.T) *os.File {
	t.Helper()
	pool, err := os.Open(filepath.Join("/proc", strconv.Itoa(s.PID()), "root", s.Dir, "runtime", "pool"))
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// fullPool waits until containers see no free space, and returns their file system.
func (s *server) fullPool(t *testing.T) *os.File {
	t.Helper()
	pool := s.pool(t)
	untilShown(t, pool, "no room", func(free int64) bool { return free < 4<<20 })
	return pool
}

// untilShown waits until containers see the wanted free space.
func untilShown(t *testing.T, pool *os.File, what string, wanted func(free int64) bool) {
	t.Helper()
	var st unix.Statfs_t
	// the kernel sends no notification
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := unix.Fstatfs(int(pool.Fd()), &st); err == nil && wanted(int64(st.Bavail)*st.Bsize) {
			return
		}
	}
	t.Fatalf("there is %s, and containers are shown %d MiB", what, int64(st.Bavail)*st.Bsize>>20)
}

// roomyPool waits until containers see free space again.
func (s *server) roomyPool(t *testing.T) {
	t.Helper()
	pool := s.pool(t)
	defer pool.Close()
	untilShown(t, pool, "room again", func(free int64) bool { return free > 64<<20 })
}

// untilRoomIsSeen waits for writers that retry on a schedule, such as the audit log.
func (s *server) untilRoomIsSeen(t *testing.T, id string) {
	t.Helper()
	var status int
	var out []byte
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if status, out, _ = s.Do("POST", "/v1/containers/"+id+"/extend", strings.NewReader("{}")); status == 200 {
			return
		}
	}
	t.Fatalf("there is room again, and the daemon answers %d %s", status, out)
}

func (s *server) worksAgain(t *testing.T, id, stored string) {
	t.Helper()
	holdsNote(t, s, id, "kept")
	if r := bash(
		t, s, id,
		"rm -f /workspace/big /workspace/more; echo again >/workspace/new && cat /workspace/new").Result.Result; r == nil || r.Stdout != "again\n" {
		t.Errorf("after space was freed a command says %+v", r)
	}
	c := createClass(t, s, proto.ClassRunc)
	bash(t, s, c.ID, "true")
	call[any](t, s, 200, "DELETE", "/v1/containers/"+c.ID, "")
	storedFile(t, s, "more")
	if status, out, err := s.Do("GET", "/v1/files/"+stored+"/content", nil); err != nil || status != 200 ||
		string(out) != "content" {
		t.Errorf("the stored file: %d %v %s", status, err, out)
	}
}
