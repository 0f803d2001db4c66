package pid1

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// TestWalkLeavesOutWhatNoPathNames checks that a walk omits files whose path is too long for the kernel. A walk uses
// descriptors and reaches them, but no program could use such paths, and their length has no limit.
func TestWalkLeavesOutWhatNoPathNames(t *testing.T) {
	w := newWorld(t, false)
	at, err := unix.Open(w.workspace, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	name, path := strings.Repeat("d", 255), w.workspace
	want := 0
	for range 20 { // 5,120 bytes
		file := filepath.Join(path, "file")
		fd, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		must(t, err)
		_ = unix.Close(fd)
		if len(file) < unix.PathMax {
			want++
		}
		must(t, unix.Mkdirat(at, name, 0o755))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		_ = unix.Close(at)
		at, path = next, filepath.Join(path, name)
	}
	_ = unix.Close(at)
	files, truncated, err := w.Walk(short(t), proto.UserRoot, ".", 100)
	if err != nil || len(files) != want || !truncated {
		t.Errorf("%d files of %d, truncated %v, %v", len(files), want, truncated, err)
	}
}
