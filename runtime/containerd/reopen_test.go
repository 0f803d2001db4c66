package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/diskpool"
)

// punch frees all blocks of the pool's file that hold only zeros, as a sparse copy of the file would. root is the
// mount point of the pool. punch freezes the pool, because a write during the read of a block would be lost.
func punch(t *testing.T, root, file string) {
	t.Helper()
	const freeze, thaw = 0xc0045877, 0xc0045878 // FIFREEZE and FITHAW of linux/fs.h
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	img, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if err := unix.IoctlSetInt(int(dir.Fd()), freeze, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.IoctlSetInt(int(dir.Fd()), thaw, 0); err != nil {
			t.Error(err)
		}
	}()
	const page = 4 << 10
	zero, got := make([]byte, page), make([]byte, page)
	for at := int64(0); ; at += page { // blocks that are only allocated count as holes, so read all
		_, err := img.ReadAt(got, at)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && bytes.Equal(got, zero) {
			err = unix.Fallocate(int(img.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, page)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// isReadOnly reports whether the file system of path can no longer be written to.
func isReadOnly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// TestEndedPoolIsReopened checks that a pool that turned read-only under running sandboxes works again from the next
// start on, with the data that was written before.
func TestEndedPoolIsReopened(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1000m"); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	cfg := testConfig(dir)
	cfg.PoolBytes = 512 << 20
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	id, spec := startTest(t, r, proto.ClassRunc)
	if got := ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/kept", Size: 1 << 20}); got.Err != "" {
		t.Fatal(got.Err)
	}
	root, file := filepath.Join(dir, "pool"), filepath.Join(dir, "pool.img")
	sync := func() {
		if d, err := os.Open(root); err == nil {
			_ = unix.Syncfs(int(d.Fd()))
			d.Close()
		}
	}
	r.disk.StopWatching()
	sync()
	punch(t, root, file)
	others, err := os.Create(filepath.Join(dir, "others"))
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	for range 10 { // the daemon writes to the disk, too
		room, _, _ := diskpool.DiskSpace(dir)
		if err = unix.Fallocate(int(others.Fd()), 0, 0, room); !errors.Is(err, unix.ENOSPC) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 100 && !isReadOnly(root); n++ {
		_ = os.Mkdir(filepath.Join(r.disk.WorkspacePath(spec.Workspace), fmt.Sprint("dir", n)), 0o700)
		sync()
	}
	if !isReadOnly(root) {
		t.Fatal("the pool still lives")
	}
	if r.disk.CheckFile() {
		t.Error("nobody has seen it")
	}
	if err := r.Pause(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := diskpool.Open(dir, 0, cfg.Log); !errors.Is(err, diskpool.ErrHeld) ||
		!strings.Contains(err.Error(), file) {
		t.Errorf("opening it under the sandbox: %v", err)
	}
	if err := os.Remove(others.Name()); err != nil {
		t.Error(err)
	}
	others.Close()

	r = openWith(t, cfg)
	if isReadOnly(root) {
		t.Error("the pool is read-only yet")
	}
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, r, id, guestRequest{Op: "read", Path: "/workspace/kept"}); len(got.Text) == 0 || got.Err != "" {
		t.Errorf("its file is gone: %s", got.Err)
	}
	if got := ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/new", Size: 1 << 20}); got.Err != "" {
		t.Errorf("it cannot write: %s", got.Err)
	}
}
