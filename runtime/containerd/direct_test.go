package containerd

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"berth/proto"
	"berth/runtime/cgroup"
)

// TestNothingBesides checks that a sandbox of runc has only its guest, its disk and its cgroup: no other process and
// no mount of the host exists for it.
func TestNothingBesides(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	before := holdings(t, r)
	id, _ := startTest(t, r, proto.ClassRunc)
	alone := map[string]int{}
	for _, what := range []string{"mounts", "fds", "processes", "sockets", "goroutine", "leases", "snapshots"} {
		alone[what] = before[what]
	}
	noMore(t, r, alone)
	for _, dir := range cgroup.Dirs(id) {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if pid, perr := r.bundles.LivePID(id); err != nil || perr != nil || strings.TrimSpace(string(procs)) != strconv.Itoa(
			pid) {
			t.Errorf("%s holds %q, and the guest is %d (%v %v)", dir, procs, pid, err, perr)
		}
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	nothingOf(t, r, []string{id})
}

// TestNumberOfAnother checks that a process with the number of an ended guest is not taken for that guest.
func TestNumberOfAnother(t *testing.T) {
	r := openTest(t)
	id, _ := startTest(t, r, proto.ClassRunc)
	if _, err := r.bundles.LivePID(id); err != nil {
		t.Fatal(err)
	}
	another := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(filepath.Join(r.bundles.Path(id), "pid"), []byte(another), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid, err := r.bundles.LivePID(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the guest is taken for process %d: %v", pid, err)
	}
	if _, err := r.Inspect(t.Context(), id); err == nil {
		t.Error("another process was inspected")
	}
	if err := r.Stop(t.Context(), id); err != nil { // a wrong number would make Stop kill this test
		t.Fatal(err)
	}
	nothingOf(t, r, []string{id})
}

// TestRuncFails checks that our log has runc's messages, that the caller's error reveals nothing of the host, and
// that nothing is left.
func TestRuncFails(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	before := holdings(t, r)
	defer runcAlone(r)()
	class := r.class[proto.ClassRunc]
	good := class.Binary
	class.Binary = filepath.Join(t.TempDir(), "runc")
	script := "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = --log ] && echo '{\"level\":\"error\",\"msg\":\"no such " +
		"luck\"}' >$2; shift; done; exit 1\n"
	if err := os.WriteFile(class.Binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	r.log = slog.New(slog.NewTextHandler(&logged, nil))
	r.class[proto.ClassRunc] = class
	_, err := tryStart(t, r, proto.ClassRunc)
	class.Binary = good
	r.class[proto.ClassRunc] = class
	if proto.CodeOf(err) != proto.Internal || strings.Contains(err.Error(), "luck") ||
		!strings.Contains(logged.String(), "no such luck") {
		t.Errorf("told %v, logged %s", err, logged.String())
	}
	noMore(t, r, before)
}
