package daemon_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
)

// asked prints what df, free and programs see: the limits of memory and disk in bytes, each by several ways.
const asked = `
free -b | awk '/^Mem:/ {print "free", $2}'
df -B1 --output=size / | tail -1 | xargs echo df-root
df -B1 --output=size /workspace | tail -1 | xargs echo df-workspace
cd /tmp && stat -f -c '%b %S' . | awk '{print "relative", $1 * $2}'
python3 - <<'END'
import os
for name, st in ("statvfs", os.statvfs("/workspace")), ("fstatvfs", os.fstatvfs(os.open("/home", os.O_RDONLY))):
    print(name, st.f_blocks * st.f_frsize)
END
`

// seenBy runs asked in a container as a user, and returns the lines.
func seenBy(t *testing.T, s *server, id, user string) string {
	t.Helper()
	res := runAs(t, s, id, user, asked)
	if res.Result.Result == nil || res.Result.Result.ReturnCode != 0 {
		t.Fatalf("%+v", res)
	}
	return res.Result.Result.Stdout
}

func runAs(t *testing.T, s *server, id, user, text string) proto.ExecResult {
	t.Helper()
	return call[proto.ExecResult](t, s, 200, "POST", "/v1/containers/"+id+"/exec",
		fmt.Sprintf(`{"command":%q,"user":%q}`, text, user))
}

// limitsSeen is what asked prints with these limits.
func limitsSeen(memory, disk int64) string {
	var b strings.Builder
	for _, name := range strings.Fields("free df-root df-workspace relative statvfs fstatvfs") {
		limit := disk
		if name == "free" {
			limit = memory
		}
		fmt.Fprintln(&b, name, limit)
	}
	return b.String()
}

// TestCapacity checks that programs in a container see its limits as the sizes of memory and disk: at once after a
// change, for each user, and after a stop, a pause, and the end of the daemon.
func TestCapacity(t *testing.T) {
	s := base
	c := create(t, s)
	at := "/v1/containers/" + c.ID
	const mib = int64(1) << 20
	memory, disk := 256*mib, 256*mib
	see := func(when string) {
		t.Helper()
		for _, user := range []string{"user", "root"} {
			if got, want := seenBy(t, s, c.ID, user), limitsSeen(memory, disk); got != want {
				t.Errorf("%s, %s sees\n%swant\n%s", when, user, got, want)
			}
		}
	}
	see("at first")
	memory, disk = 192*mib, 320*mib
	call[proto.Container](t, s, 200, "PATCH", at,
		fmt.Sprintf(`{"limits":{"memory_bytes":%d,"disk_bytes":%d}}`, memory, disk))
	see("after a change")
	for _, verb := range []string{"pause", "stop"} {
		call[proto.Container](t, s, 200, "POST", at+"/"+verb, "")
		see("after a " + verb)
	}
	s.Stop(syscall.SIGKILL)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	see("with another daemon")
}

// TestCapacityIsTrue checks the rest of what df shows: a file takes from what is free, and other file systems and paths
// of the kernel are answered as ever. Programs that do not ask are not held up.
func TestCapacityIsTrue(t *testing.T) {
	s := base
	c := create(t, s)
	res := runAs(t, s, c.ID, "user", `
left() { df -B1 --output=avail /workspace | tail -1; }
before=$(left)
head -c 67108864 /dev/urandom >file && sync
until after=$(left) && [ $((before - after)) -ge 60000000 ]; do sleep 0.01; done # figures may stay for a moment
[ $((before - after)) -lt 100000000 ] && echo taken || echo $before $after
stat -f -c 'shm %T' /dev/shm
stat -f -c 'proc %T' /proc/self
stat -f -c 'none' /nowhere
df -B1 --output=target | grep -c meminfo
`)
	want := "taken\nshm tmpfs\nproc proc\n0\n"
	if got := res.Result.Result; got == nil || got.Stdout != want || !strings.Contains(got.Stderr, "No such file") {
		t.Errorf("%+v", got)
	}
}
