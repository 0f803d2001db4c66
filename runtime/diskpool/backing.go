package diskpool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/runtime/btrfs"

	"golang.org/x/sys/unix"
)

// The pool's file is sparse: free space in the pool is not necessarily free on the disk below. If the disk below is
// full, a write fails after the kernel has reported success to the writer. If that write was for the file system's
// own records, the file system turns read-only, and all containers with it. See docs/decisions/0008.

const (
	// backingEvery is the interval between two checks. In between, containers can use only the space that the last
	// check left free; only other users of the disk can use more.
	backingEvery = time.Second
	// lastKept bounds how long a hole in the records stays when another program made it, such as fstrim.
	lastKept = time.Minute

	// Containers leave free the smaller of mostHostRoom, in bytes, and a fiftieth of the disk, for the daemon's own
	// files. Images leave more than that: a container can continue where no image fits.
	mostHostRoom = 256 << 20

	// balloonPiece is the maximum size of a balloon file. balloonSlack is how much smaller than necessary the balloon
	// may be. Both are in bytes.
	balloonPiece = 16 << 20
	balloonSlack = 4 << 20
	// Each allocation of the balloon is balloonLeast times a power of two. The balloon must take the last free bytes,
	// or the file system accepts writes as often as they fail.
	balloonLeast = 4 << 10

	// recordsPiece is how many bytes of records get blocks per call. If there are too few blocks for all records, the
	// first pieces have some.
	recordsPiece = 16 << 20
	// recordsChunk is the size of a chunk of records, in bytes, that we set in the kernel. The kernel's default is 1
	// GiB in pools above 50 GiB, and all of it would need blocks.
	recordsChunk = 256 << 20

	// trimFrom is how much space of removed files the pool's file may keep before a trim. trimLeast is the smallest
	// piece that a trim gives back. Both are in bytes.
	trimFrom  = 64 << 20
	trimLeast = 64 << 10
	// trimBeside is how much must be free outside a chunk during its trim, in bytes. Free space in the chunk still
	// counts as free during the trim but cannot be used. Writes that were accepted for that space would be lost.
	trimBeside = 256 << 20

	// openRoom is how much a starting daemon may write to the pool, in bytes. Most of it is the guest.
	openRoom = 16 << 20

	// roomSaid is how long there must be room again before the log says so.
	roomSaid = time.Minute
)

// A backing keeps the pool's file in agreement with the state of the file system in it:
//
//   - Records, present and future, have blocks on the disk below permanently.
//   - A balloon takes the free space that the disk below does not have, so that a write fails at once. It consists of
//     files that no container can see.
//   - The space of removed files goes back to the disk below.
type backing struct {
	root string // of the pool
	img  *os.File
	fsid string
	size int64 // of the pool, bytes
	keep int64 // bytes of the disk that stay free for others
	log  *slog.Logger

	records []btrfs.Extent // the file system's own records
	backed  time.Time      // when all records last had blocks; zero if some have none
	// vague: the disk below allocates only on write, so its numbers say little about what files take
	vague    bool
	balloon  []int64   // size of each balloon file; the index is the file's name
	unneeded int64     // bytes of the file that the last trim could not give back
	tight    time.Time // when there was last a balloon, once that was logged; zero if there is room
	broken   bool      // the file system is read-only, and that was logged
	said     string    // error of the last check, as text; "" if it succeeded

	stop chan struct{}
	done sync.WaitGroup
}

// back starts a backing for the pool in img, which is mounted at root. When back returns, records have blocks.
func back(root, img, fsid string, log *slog.Logger) (*backing, error) {
	b := &backing{root: root, fsid: fsid, log: log, stop: make(chan struct{})}
	if err := b.findBalloon(); err != nil {
		return nil, err
	}
	_, size, err := DiskSpace(img)
	if err != nil {
		return nil, err
	}
	b.keep = min(mostHostRoom, size/50)
	if b.img, err = os.OpenFile(img, os.O_RDWR|unix.O_NOFOLLOW, 0); err != nil {
		return nil, err
	}
	if b.size, err = b.img.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, b.img.Close())
	}
	// kernels before 6.0 choose the size themselves
	_ = os.WriteFile(b.about("metadata", "chunk_size"), strconv.AppendInt(nil, recordsChunk, 10), 0)
	b.tell(b.begin())
	b.done.Go(func() {
		tick := time.NewTicker(backingEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.look()
			case <-b.stop:
				return
			}
		}
	})
	return b, nil
}

// close stops the checks. The balloon stays, for the next daemon and for the containers that run until then.
func (b *backing) close() {
	close(b.stop)
	b.done.Wait()
	b.img.Close()
}

// begin makes the pool ready for work. There is no balloon yet, or the balloon of the previous daemon.
func (b *backing) begin() error {
	err := b.keepRecords()
	if err == nil {
		b.enlargeRecords()
		err = b.keepRecords()
	}
	if host, _, herr := DiskSpace(b.img.Name()); herr == nil && host >= 2*openRoom && len(b.balloon) > 0 {
		err = errors.Join(err, b.deflate(openRoom))
	}
	return err
}

// StopWatching stops the periodic check of the pool's file. Tests call it, and then CheckFile, to see what happens
// between two checks.
func (d *Pool) StopWatching() {
	close(d.backing.stop)
	d.backing.done.Wait()
	d.backing.stop = make(chan struct{})
}

// CheckFile does one check, as the backing does each second. It reports whether the pool can still be written.
func (d *Pool) CheckFile() bool {
	d.backing.look()
	return !d.backing.broken
}

// look does one check. The next check tries again what failed.
func (b *backing) look() {
	if b.isBroken() {
		return
	}
	b.tell(errors.Join(b.keepRecords(), b.giveBack(), b.resizeBalloon()))
}

// tell logs an error, unless it is the same as in the check before.
func (b *backing) tell(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != b.said && err != nil {
		b.log.Warn("the disk below the containers' files cannot be looked after; it is tried again", "err", err)
	}
	b.said = said
}

// isBroken reports whether the file system has turned read-only, and logs that once.
func (b *backing) isBroken() bool {
	if readOnly(b.root) && !b.broken {
		b.broken = true
		b.log.Error("the containers' files are read-only, since the disk below has failed to write; see that it has "+
			"room and works, and restart the daemon, which starts containers again",
			"file", b.img.Name())
	}
	return b.broken
}

// readOnly reports whether the file system of path is read-only.
func readOnly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// keepRecords allocates blocks for the records. On a disk that cannot allocate ahead of a write, records get blocks
// when they are written, as files do.
func (b *backing) keepRecords() error {
	list, err := btrfs.Chunks(b.root)
	if err != nil {
		return err
	}
	var wanted []btrfs.Extent
	for _, c := range list {
		for _, at := range c.At {
			if c.Records {
				wanted = append(wanted, btrfs.Extent{At: int64(at), Length: int64(c.Length)})
			}
		}
	}
	if slices.Equal(wanted, b.records) && time.Since(b.backed) < lastKept {
		return nil
	}
	b.records, b.backed = wanted, time.Time{}
	for _, e := range wanted {
		for at := e.At; at < e.At+e.Length; at += recordsPiece {
			length := min(recordsPiece, e.At+e.Length-at)
			err := allocate(b.img, unix.FALLOC_FL_KEEP_SIZE, at, length)
			if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("keeping room for the file system's own records: %w", err)
			}
		}
	}
	b.backed = time.Now()
	blocks, err := b.blocks()
	b.vague = blocks < b.recordBytes() // some file systems report success and allocate nothing
	return err
}

// allocate calls fallocate until no signal interrupts it. Some file systems end the call early for a signal, and the
// Go runtime sends signals.
func allocate(f *os.File, mode uint32, at, length int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), mode, at, length); err != unix.EINTR {
			return err
		}
	}
}

// recordBytes returns the total length of the records.
func (b *backing) recordBytes() (sum int64) {
	for _, e := range b.records {
		sum += e.Length
	}
	return sum
}

// blocks returns how many bytes of the disk below the pool's file takes.
func (b *backing) blocks() (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(b.img.Fd()), &st)
	return st.Blocks * 512, err
}

// about returns the path of a file in which the kernel shows its allocation of chunks, in bytes. See the kernel's
// Documentation/ABI/testing/sysfs-fs-btrfs.
func (b *backing) about(names ...string) string {
	return filepath.Join("/sys/fs/btrfs", b.fsid, "allocation", filepath.Join(names...))
}

func (b *backing) space(names ...string) (int64, error) {
	text, err := os.ReadFile(b.about(names...))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// enlargeRecords makes a new file system allocate at once the chunk for records that it would allocate soon. A new
// file system has 8 MiB for records, which is hardly enough. It would take more from the space that no chunk has, and
// the balloon may have that space by then.
func (b *backing) enlargeRecords() {
	host, _, err := DiskSpace(b.img.Name())
	if err != nil || host < b.keep+2*b.recordsNext() { // the records would be written to where there are no blocks
		return
	}
	if all, err := b.space("metadata", "total_bytes"); err == nil && all < b.recordsNext()/2 {
		_ = btrfs.BalanceRecords(b.root) // on failure there is less room for small files when the disk below is full
	}
}

// recordsNext returns how many bytes the file system takes for records at once: recordsChunk, or a tenth of a small
// pool.
func (b *backing) recordsNext() int64 { return min(recordsChunk, b.size/10) }

// growth returns how many bytes the file system may soon take for records. It returns 0 if more than half of
// recordsNext is free in the chunks that exist.
func (b *backing) growth() (int64, error) {
	coming, err := b.space("metadata", "bytes_may_use")
	reserve, rerr := b.space("global_rsv_size")
	free, ferr := b.space("metadata", "total_bytes")
	err = errors.Join(err, rerr, ferr)
	for _, name := range []string{"bytes_used", "bytes_reserved", "bytes_pinned"} {
		used, uerr := b.space("metadata", name)
		free, err = free-used, errors.Join(err, uerr)
	}
	free -= min(coming, reserve) // the rest is the worst case of present writers, and goes with them
	if err != nil || free > b.recordsNext()/2 {
		return 0, err
	}
	return b.recordsNext(), nil
}

// A fileSpace says how much of the pool is for files, in bytes.
type fileSpace struct {
	whole int64 // size of all chunks for files
	// held is in use by files, the balloon included, or was and cannot be used by other files yet
	held   int64
	coming int64 // written to files, but not placed yet
	shut   int64 // free, but not usable now
}

func (b *backing) fileSpace() (c fileSpace, err error) {
	for _, part := range []struct {
		name string
		sum  *int64
	}{
		{"total_bytes", &c.whole}, {"bytes_used", &c.held}, {"bytes_reserved", &c.held}, {"bytes_pinned", &c.held},
		{"bytes_may_use", &c.coming}, {"bytes_readonly", &c.shut},
	} {
		n, err := b.space("data", part.name)
		if err != nil {
			return c, err
		}
		*part.sum += n
	}
	return c, nil
}

// free returns how many bytes files can have without a new chunk.
func (c fileSpace) free() int64 { return max(0, c.whole-c.held-c.coming-c.shut) }

// surplus returns how many bytes the pool's file takes on the disk without need. A negative number is what files were
// promised and has no blocks.
func (b *backing) surplus(c fileSpace) (int64, error) {
	blocks, err := b.blocks()
	return blocks - c.held + b.ballooned() - b.recordBytes(), err
}

// giveBack returns the space of removed files to the disk below. It trims a chunk only if there is enough free space
// outside the chunk for the writes of that time. If there is a balloon, giveBack does nothing: the balloon gives back
// the blocks under it.
func (b *backing) giveBack() error {
	c, err := b.fileSpace()
	if err != nil {
		return err
	}
	surplus, err := b.surplus(c)
	b.unneeded = min(b.unneeded, max(0, surplus))
	if err != nil || surplus < b.unneeded+trimFrom || len(b.balloon) > 0 {
		return err
	}
	list, err := btrfs.Chunks(b.root)
	unused := b.unused(list)
	for _, chunk := range list {
		if c, err = b.fileSpace(); err != nil {
			return err
		}
		if chunk.Records || c.free()+unused < int64(chunk.Length)+trimBeside {
			continue
		}
		if err := btrfs.Trim(b.root, chunk, trimLeast); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("giving back what was removed: %w", err)
		}
	}
	if err == nil {
		surplus, err = b.surplus(c)
	}
	b.unneeded = max(0, surplus)
	return err
}

// unused returns how many bytes belong to no chunk.
func (b *backing) unused(list []btrfs.Chunk) int64 {
	unused := b.size
	for _, chunk := range list {
		unused -= int64(chunk.Length) * int64(len(chunk.At))
	}
	return max(0, unused)
}

// room returns how many bytes the disk below has for files, and how many bytes the file system counts as free.
func (b *backing) room() (room, free int64, err error) {
	list, err := btrfs.Chunks(b.root)
	c, cerr := b.fileSpace()
	growth, gerr := b.growth()
	host, _, herr := DiskSpace(b.img.Name())
	if err := errors.Join(err, cerr, gerr, herr); err != nil {
		return 0, 0, err
	}
	surplus, err := b.surplus(c)
	unused := b.unused(list)
	room = host - b.keep - min(growth, unused) - c.coming
	if !b.vague {
		room += min(0, surplus)
	}
	return max(0, room), c.free() + unused, err
}

// resizeBalloon resizes the balloon so that no more is free in the pool than the disk below has room for.
func (b *backing) resizeBalloon() error {
	if b.keep == 0 { // a disk below that reports no size does not report its free space either
		return nil
	}
	room, free, err := b.room()
	if err != nil {
		return err
	}
	switch more := free - room; {
	case more > balloonSlack || more > 0 && room == 0:
		err = b.inflate(more)
	case more < -balloonSlack:
		err = b.deflate(-more)
	}
	switch {
	case len(b.balloon) > 0 && b.tight.IsZero():
		b.log.Warn(
			"the disk of the data directory has less room than the disk pool; containers are shown what there is",
			"mib", room>>20)
		fallthrough
	case len(b.balloon) > 0:
		b.tight = time.Now()
	case !b.tight.IsZero() && time.Since(b.tight) > roomSaid:
		b.log.Info("the disk of the data directory has room for the whole disk pool again")
		b.tight = time.Time{}
	}
	return err
}

func (b *backing) balloonDir() string       { return filepath.Join(b.root, "balloon") }
func (b *backing) balloonFile(n int) string { return filepath.Join(b.balloonDir(), strconv.Itoa(n)) }

// ballooned returns the size of the balloon.
func (b *backing) ballooned() (sum int64) {
	for _, size := range b.balloon {
		sum += size
	}
	return sum
}

// findBalloon finds the balloon of the previous daemon. It removes a balloon that has gaps in its file numbers.
func (b *backing) findBalloon() error {
	entries, err := Names(b.balloonDir())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for n := range entries {
		info, err := os.Lstat(b.balloonFile(n))
		if err != nil {
			b.balloon = nil
			return b.dropBalloon(entries)
		}
		b.balloon = append(b.balloon, info.Size())
	}
	return nil
}

func (b *backing) dropBalloon(names []string) (err error) {
	for _, name := range names {
		err = errors.Join(err, os.Remove(filepath.Join(b.balloonDir(), name)))
	}
	return err
}

// inflate grows the balloon by size, or by the free space if that is less.
func (b *backing) inflate(size int64) error {
	size = (size + balloonLeast - 1) / balloonLeast * balloonLeast
	for piece := int64(balloonPiece); size > 0 && piece >= balloonLeast; {
		if piece > size {
			piece /= 2
			continue
		}
		err := b.addPiece(piece)
		switch {
		case err == nil:
			size -= piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		default:
			return fmt.Errorf("taking free space: %w", err)
		}
	}
	return nil
}

// addPiece adds size bytes to the balloon, allocated but not written. The blocks below these bytes go back to the
// disk.
func (b *backing) addPiece(size int64) error {
	if err := os.Mkdir(b.balloonDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	last := len(b.balloon) - 1
	if last < 0 || b.balloon[last]+size > balloonPiece {
		last++
	}
	f, err := os.OpenFile(b.balloonFile(last), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if last == len(b.balloon) {
		b.balloon = append(b.balloon, 0)
	}
	at := b.balloon[last]
	if err := allocate(f, 0, at, size); err != nil {
		if at == 0 {
			b.balloon = b.balloon[:last]
			err = errors.Join(err, os.Remove(f.Name()))
		}
		return err
	}
	b.balloon[last] += size
	return b.empty(f, btrfs.Extent{At: at, Length: size})
}

// empty frees the blocks below a part of the balloon. That part was just allocated and holds nothing, and the file
// system cannot give its place to another file.
func (b *backing) empty(f *os.File, part btrfs.Extent) error {
	places, err := btrfs.Unwritten(f, part)
	if err != nil {
		return err
	}
	list, err := btrfs.Chunks(b.root)
	if err != nil {
		return err
	}
	for _, place := range places {
		for _, at := range onDevice(list, place) {
			if err := allocate(b.img, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at,
				place.Length); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
				return err
			}
		}
	}
	return nil
}

// onDevice translates a place from the file system's addresses to those of the device. It returns nothing unless the
// place lies in one chunk for files.
func onDevice(list []btrfs.Chunk, place btrfs.Extent) (at []int64) {
	for _, c := range list {
		first := int64(c.Logical)
		if c.Records || place.At < first || place.At+place.Length > first+int64(c.Length) {
			continue
		}
		for _, begin := range c.At {
			at = append(at, int64(begin)+place.At-first)
		}
	}
	return at
}

// deflate shrinks the balloon by at most size. It removes whole files, since btrfs frees no part of an allocation.
func (b *backing) deflate(size int64) error {
	removed := false
	for last := len(b.balloon) - 1; last >= 0 && b.balloon[last] <= size; last-- {
		if err := os.Remove(b.balloonFile(last)); err != nil {
			return fmt.Errorf("giving free space: %w", err)
		}
		size -= b.balloon[last]
		b.balloon = b.balloon[:last]
		removed = true
	}
	if !removed {
		return nil
	}
	if err := btrfs.AwaitSync(b.root); err != nil { // the space counts as taken until then
		return fmt.Errorf("giving free space: %w", err)
	}
	return nil
}
