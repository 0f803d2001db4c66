package diskpool

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/proto"
	"berth/runtime/btrfs"

	"golang.org/x/sys/unix"
)

// smallDisk makes a disk of mib MiB and returns a directory on it.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk fills the disk of dir up to leave free bytes. The returned function frees the space again.
func fillDisk(t *testing.T, dir string, leave int64) (free func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "others"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 10 { // other programs write to the disk, too
		room, _, derr := DiskSpace(dir)
		if err = derr; err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, 0, room-leave)
		}
		if !errors.Is(err, unix.ENOSPC) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}

// unwatched opens a pool whose backing checks only when the test calls it.
func unwatched(t *testing.T, dir string) *Pool {
	t.Helper()
	d, err := Open(dir, 512<<20, testLog)
	if err != nil {
		t.Fatal(err)
	}
	if d.Kind != Loop || !d.Quota {
		t.Fatalf("no disk limits on this machine: %s %s", d.Kind, d.Why)
	}
	stopWatching(d.backing)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// smallPool opens an unwatched pool with a workspace, on a disk that is little larger than the pool.
func smallPool(t *testing.T) (d *Pool, workspace string) {
	t.Helper()
	d = unwatched(t, smallDisk(t, 700))
	workspace, err := d.MakeWorkspace("ws", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return d, workspace
}

// stopWatching stops the periodic check; the test then checks itself.
func stopWatching(b *backing) {
	close(b.stop)
	b.done.Wait()
	b.stop = make(chan struct{})
}

// put appends mib MiB to a file, syncs it and returns how many MiB were accepted. If accepted data is lost, put fails
// the test.
func put(t *testing.T, path string, mib int) (accepted int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range mib {
		if _, err := f.Write(bytes.Repeat([]byte{1}, 1<<20)); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Errorf("writing on a full disk: %v", err)
			}
			break
		}
		accepted++
	}
	if err := f.Sync(); err != nil {
		t.Errorf("%d MiB were accepted and are lost: %v", accepted, err)
	}
	return accepted
}

// TestFullDiskBelowPool checks that containers see the room of the disk below, that accepted writes are on disk, and
// that the pool survives whatever other programs do to that disk.
func TestFullDiskBelowPool(t *testing.T) {
	d, ws := smallPool(t)
	b := d.backing
	file := filepath.Join(ws, "file")
	put(t, file, 1)
	b.look()

	growth, err := b.growth()
	if err != nil {
		t.Fatal(err)
	}
	free := fillDisk(t, filepath.Dir(b.img.Name()), b.keep+growth+100<<20)
	b.look()
	b.look() // the first write makes the file system allocate room for its own records
	got := put(t, file, 200)
	if got < 100-balloonSlack>>20-2 || got > 100+balloonSlack>>20 {
		t.Errorf("of 100 MiB that the disk has, %d could be written", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := btrfs.AwaitSync(d.root); err != nil {
		t.Fatal(err)
	}
	for range 5 { // each write takes from the balloon what the one before gave to the disk
		b.look()
	}
	if again := put(t, file, 200); again < got-2*balloonPiece>>20 || again > got+2*balloonSlack>>20 {
		t.Errorf("of %d MiB that were removed, %d could be written again", got, again)
	}
	free()
	b.look()

	free = fillDisk(t, filepath.Dir(b.img.Name()), 0)
	b.look()
	if got := put(t, file, 10); got > balloonSlack>>20 {
		t.Errorf("%d MiB were accepted for a full disk", got)
	}
	for n := range 2000 { // each takes room for records, and commits take more
		_ = os.WriteFile(filepath.Join(ws, fmt.Sprint("small", n)), []byte("some"), 0o600)
		if n%200 == 0 {
			_ = btrfs.AwaitSync(d.root)
		}
	}
	if err := btrfs.AwaitSync(d.root); err != nil || readOnly(d.root) {
		t.Fatalf("a full disk below ended the pool: %v", err)
	}
	free()

	b.look()
	if got := put(t, file, 100); got < 100 {
		t.Errorf("with room again, %d of 100 MiB could be written", got)
	}
	if len(b.balloon) > 0 {
		t.Errorf("the balloon has %d bytes, with room for all", b.ballooned())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := btrfs.AwaitSync(d.root); err != nil {
		t.Fatal(err)
	}
	b.look()
	var st unix.Stat_t
	kept := int64(0)
	for _, e := range b.records {
		kept += e.Length
	}
	if err := unix.Stat(b.img.Name(), &st); err != nil || st.Blocks*512 < kept || st.Blocks*512 > kept+trimFrom {
		t.Errorf("with all removed the pool has %d MiB of the disk, %d of them for its own records: %v",
			st.Blocks*512>>20, kept>>20, err)
	}
}

// TestFullPoolLosesNothing checks that accepted writes are on disk to the byte while the pool has hardly any room and
// its backing runs.
func TestFullPoolLosesNothing(t *testing.T) {
	d, ws := smallPool(t)
	b := d.backing
	defer fillDisk(t, filepath.Dir(b.img.Name()), b.keep+60<<20)()
	b.look()
	b.look()
	var writers sync.WaitGroup
	var kept, refused atomic.Int64
	for n := range 3 {
		writers.Go(func() {
			for round := range 150 {
				path := filepath.Join(ws, fmt.Sprint("file", n, "-", round%8))
				full, err := rewrite(path, byte(round), 4<<20)
				switch {
				case err != nil:
					t.Errorf("round %d: what was accepted is lost: %v", round, err)
				case full:
					refused.Add(1)
				default:
					kept.Add(1)
				}
				if round%8 == 7 {
					for old := range 8 {
						if err := holdsOne(filepath.Join(ws, fmt.Sprint("file", n, "-", old))); err != nil {
							t.Errorf("round %d: %v", round, err)
						}
						if old%2 == 0 {
							os.Remove(filepath.Join(ws, fmt.Sprint("file", n, "-", old)))
						}
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for looking := true; looking; {
		select {
		case <-tick.C:
			b.look()
		case <-done:
			looking = false
		}
	}
	if kept.Load() < 50 || refused.Load() == 0 {
		t.Errorf("%d files were written and %d refused: the pool was not full, or of no use", kept.Load(),
			refused.Load())
	}
	if b.said != "" {
		t.Error(b.said)
	}
}

// rewrite replaces a file by size bytes of one kind. If a write was refused, the file is not there.
func rewrite(path string, kind byte, size int) (full bool, err error) {
	f, err := os.Create(path)
	if errors.Is(err, unix.ENOSPC) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	piece := bytes.Repeat([]byte{kind}, 64<<10)
	for range size / len(piece) {
		if _, err = f.Write(piece); err != nil {
			if errors.Is(err, unix.ENOSPC) {
				return true, os.Remove(path)
			}
			return false, err
		}
	}
	return false, f.Sync()
}

// holdsOne reads a file from the disk, if it exists, and fails unless all of its bytes are equal.
func holdsOne(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	content, err := io.ReadAll(f)
	if err == nil && len(content) > 0 && !bytes.Equal(content, bytes.Repeat(content[:1], len(content))) {
		err = fmt.Errorf("%s does not hold what was written", path)
	}
	return err
}

// TestBalloonIsFound checks that the next daemon takes over the previous daemon's balloon, whole or not.
func TestBalloonIsFound(t *testing.T) {
	dir := smallDisk(t, 700)
	d := unwatched(t, dir)
	free := fillDisk(t, dir, d.backing.keep)
	defer free()
	d.backing.look()
	files := len(d.backing.balloon)
	if err := d.backing.deflate(balloonPiece); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := d.backing.inflate(balloonLeast); err != nil {
			t.Fatal(err)
		}
	}
	was := d.backing.balloon
	if len(was) > files+1 {
		t.Errorf("100 small parts made %d files of %d", len(was), files)
	}
	if len(was) < 2 {
		t.Fatalf("a balloon of %d files", len(was))
	}
	next := &backing{root: d.root}
	if err := next.findBalloon(); err != nil || fmt.Sprint(next.balloon) != fmt.Sprint(was) {
		t.Errorf("%v, not %v: %v", next.balloon, was, err)
	}
	if err := os.Remove(next.balloonFile(0)); err != nil {
		t.Fatal(err)
	}
	next = &backing{root: d.root}
	if err := next.findBalloon(); err != nil || len(next.balloon) > 0 {
		t.Errorf("of a balloon with a gap %v is left, %v", next.balloon, err)
	}
	if left, err := Names(next.balloonDir()); err != nil || len(left) > 0 {
		t.Errorf("files of it are left: %v, %v", left, err)
	}
}

// TestUpgradeOnFullDisk opens a pool as older daemons left it, without blocks for its records, on a full disk. The
// attempt to allocate them must not break the pool.
func TestUpgradeOnFullDisk(t *testing.T) {
	dir := smallDisk(t, 700)
	if err := makePoolFile(poolFile(dir), 512<<20); err != nil {
		t.Fatal(err)
	}
	free := fillDisk(t, dir, 13<<20) // which is what records take, and little more
	d := unwatched(t, dir)
	if err := btrfs.AwaitSync(d.root); err != nil || readOnly(d.root) {
		t.Errorf("the pool has ended: %v", err)
	}
	free()
	d.backing.look()
	if got := put(t, filepath.Join(d.root, "file"), 10); got < 10 {
		t.Errorf("with room, %d of 10 MiB could be written", got)
	}
}

// TestStartWithBalloon checks that a daemon has the room for its own start when containers have none.
func TestStartWithBalloon(t *testing.T) {
	dir := smallDisk(t, 2000)
	d := unwatched(t, dir)
	defer fillDisk(t, dir, d.backing.keep-1<<20)()
	d.backing.look()
	if got := put(t, filepath.Join(d.root, "file"), 1); got > 0 {
		t.Fatal("containers have room")
	}
	next, err := Open(dir, 0, testLog)
	if err != nil {
		t.Fatal(err)
	}
	stopWatching(next.backing)
	if _, err := next.KeepGuest("/bin/true"); err != nil {
		t.Errorf("the guest has no room: %v", err)
	}
	next.backing.close() // the other pool owns the mount
	next.tidy.stop()
}

// The helpers below stay with these tests.

var testLog = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

func listDir(t *testing.T, dir string) []string {
	t.Helper()
	got, err := Names(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return got
}

func randomID(prefix string) string {
	var bits [16]byte
	_, _ = rand.Read(bits[:])
	return proto.ID(prefix, bits)
}
