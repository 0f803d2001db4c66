package containerd

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/layer"
	"berth/session"
)

// figure reads a number of a file of figures: field n of the line of that name.
func figure(t *testing.T, r *Runtime, id, path, name string, n int) int64 {
	t.Helper()
	got := ask(t, r, id, guestRequest{Op: "read", Path: path})
	for line := range strings.Lines(got.Text) {
		if f := strings.Fields(line); len(f) > n && f[0] == name {
			number, err := strconv.ParseInt(f[n], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Fatalf("%s has no %s: %+v", path, name, got)
	return 0
}

func memTotal(t *testing.T, r *Runtime, id string) int64 {
	return figure(t, r, id, "/proc/meminfo", "MemTotal:", 1) << 10
}

// TestFiguresInside checks that a sandbox sees its own memory and disk: the limits, also after a change, and the use,
// at the time of the read. No process inside can change the files, and statfs tells nothing about their file system.
func TestFiguresInside(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	for name, prepare := range map[string]func() func(){
		"setup program": func() func() { return func() {} }, "runc": func() func() { return runcAlone(r) },
	} {
		t.Run(name, func(t *testing.T) {
			defer prepare()()
			seeFigures(t, r)
		})
	}
}

func seeFigures(t *testing.T, r *Runtime) {
	id, spec := startTest(t, r, proto.ClassRunc)
	if got := memTotal(t, r, id); got != testLimits.MemoryBytes {
		t.Errorf("MemTotal is %d, the limit is %d", got, testLimits.MemoryBytes)
	}
	free := figure(t, r, id, "/proc/meminfo", "MemFree:", 1) << 10
	if free <= 0 || free >= testLimits.MemoryBytes {
		t.Errorf("%d bytes are free", free)
	}
	if r.disk.Quota {
		seeSpace(t, r, id)
	}
	for _, path := range []string{"/proc/meminfo", layer.InsideCapacity} {
		if got := ask(t, r, id, guestRequest{Op: "write", Path: path, Size: 1}); got.Err == "" {
			t.Errorf("root inside writes %s", path)
		}
		if got := ask(t, r, id, guestRequest{Op: "statfs", Path: path}); got.Number != 0 || got.Err != "" {
			t.Errorf("the file system of %s shows its size: %+v", path, got)
		}
	}
	seeChange(t, r, id, spec)
}

// seeSpace checks the figures of the disk, with a file in the workspace.
func seeSpace(t *testing.T, r *Runtime, id string) {
	t.Helper()
	for _, name := range []string{"layer", "workspace"} {
		if got := figure(t, r, id, layer.InsideCapacity, name, 1); got != testLimits.DiskBytes {
			t.Errorf("the limit of the %s is %d, want %d", name, got, testLimits.DiskBytes)
		}
	}
	const size = 8 << 20
	if got := ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/file", Size: size}); got.Err != "" {
		t.Fatal(got)
	}
	r.figures.Changed(id) // otherwise, the figures that were read just now may stay for a moment
	if got := figure(t, r, id, layer.InsideCapacity, "workspace", 2); got < size {
		t.Errorf("the workspace uses %d bytes, with a file of %d", got, size)
	}
}

// seeChange changes limits in both directions and reads them at once.
func seeChange(t *testing.T, r *Runtime, id string, spec session.Spec) {
	t.Helper()
	for _, factor := range []int64{2, 1} {
		want := testLimits
		want.MemoryBytes, want.DiskBytes = factor*testLimits.MemoryBytes, factor*testLimits.DiskBytes
		if err := r.SetLimits(t.Context(), id, spec, want); err != nil {
			t.Fatal(err)
		}
		spec.Limits = want
		if got := memTotal(t, r, id); got != want.MemoryBytes {
			t.Errorf("after a change to %d, MemTotal is %d", want.MemoryBytes, got)
		}
		if !r.disk.Quota {
			continue
		}
		if got := figure(t, r, id, layer.InsideCapacity, "layer", 1); got != want.DiskBytes {
			t.Errorf("after a change to %d, the disk is %d", want.DiskBytes, got)
		}
	}
}

// TestFiguresSurvive checks that the sandboxes of an earlier daemon show new figures, and that they keep theirs
// without a daemon.
func TestFiguresSurvive(t *testing.T) {
	dir := t.TempDir()
	r := openIn(t, dir)
	id, spec := startTest(t, r, proto.ClassRunc)
	pid, err := r.firstProcess(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var on unix.Statfs_t
	path := fmt.Sprintf("/proc/%d/root/proc/meminfo", pid)
	if err := unix.Statfs(path, &on); err != nil || on.Type != unix.TMPFS_MAGIC {
		t.Fatalf("%s without a daemon: %+v %v", path, on, err)
	}
	r = openIn(t, dir)
	if got := memTotal(t, r, id); got != testLimits.MemoryBytes {
		t.Errorf("with a new daemon, MemTotal is %d", got)
	}
	want := testLimits
	want.MemoryBytes *= 2
	if err := r.SetLimits(t.Context(), id, spec, want); err != nil {
		t.Fatal(err)
	}
	if got := memTotal(t, r, id); got != want.MemoryBytes {
		t.Errorf("with a new daemon and a new limit, MemTotal is %d", got)
	}
}

// TestFiguresOff checks that an image can ask for the machine's figures, and that programs which may gain privileges
// get those.
func TestFiguresOff(t *testing.T) {
	r := openTest(t)
	img, err := r.Images().Import(t.Context(), "off", strings.NewReader(string(ociArchive(t, figuresOff))), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, sudo := range []bool{false, true} {
		spec := session.Spec{Image: img.Digest, Class: proto.ClassRunc, Workspace: newID(proto.WorkspacePrefix),
			Layer: newID(proto.LayerPrefix), Limits: testLimits, Sudo: sudo}
		if sudo {
			spec.Image = testImage(t, r)
		}
		id := newID(proto.ContainerPrefix)
		if err := r.Start(t.Context(), id, spec); err != nil {
			t.Fatal(err)
		}
		if got := memTotal(t, r, id); got <= testLimits.MemoryBytes {
			t.Errorf("sudo %t: MemTotal is %d", sudo, got)
		}
	}
}
