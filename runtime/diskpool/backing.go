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

	"golang.org/x/sys/unix"
)

// The pool's file is sparse: what is free in it need not be free on the disk below. A write that finds no room there
// fails after whoever made it was told that all is well; if it was the file system's own, that turns read-only, and
// all containers with it. See docs/decisions/0008.

const (
	// backingEvery is how often a backing looks. In between, containers cannot take more than they were shown; only
	// others can.
	backingEvery = time.Second
	// lastKept bounds how long holes in the file system's records stay that somebody else made, as fstrim does.
	lastKept = time.Minute

	// mostHostRoom and a fiftieth of the disk, whichever is less, containers leave free for the daemon's own files,
	// in bytes. It is less than what images leave: a container can go on where no image fits.
	mostHostRoom = 256 << 20

	// balloonPiece is the most that a file of the balloon has, and balloonSlack how much the balloon may be too
	// small, in bytes.
	balloonPiece = 16 << 20
	balloonSlack = 4 << 20
	// what is taken at once is this times a power of two. No room must look like none, or writes are let in as often
	// as they fail
	balloonLeast = 4 << 10

	// recordsPiece is how many bytes get blocks at once: where there are too few for all, the first have some.
	recordsPiece = 16 << 20
	// recordsChunk is what the kernel is asked to allocate for records at once, in bytes. By itself it takes 1 GiB in
	// pools above 50 GiB, all of which would have to have blocks.
	recordsChunk = 256 << 20

	// trimFrom is how much of what containers removed the file may hold, and trimLeast the least that is given back
	// in one piece, in bytes.
	trimFrom  = 64 << 20
	trimLeast = 64 << 10
	// trimBeside is what must be free beside a chunk that is trimmed, in bytes: what is free in it cannot be used
	// meanwhile, though it counts as free, and what was accepted for it would be lost.
	trimBeside = 256 << 20

	// openRoom is what a daemon that starts may have to write to the pool, in bytes: its guest above all.
	openRoom = 16 << 20

	// roomSaid is how long there must be room again before it is said.
	roomSaid = time.Minute
)

// A backing keeps the pool's file and what the file system in it believes in agreement:
//
//   - what the file system's records are or will be written to has blocks on the disk below, for good;
//   - free space that the disk below does not have is taken by a balloon, files that nobody else can see, so that whoever writes is refused
//     at once;
//   - what files had that are gone is given back to the disk below.
type backing struct {
	root string // of the pool
	img  *os.File
	fsid string
	size int64 // of the pool, bytes
	keep int64 // bytes of the disk that are for others
	log  *slog.Logger

	records []extent  // for the file system's own use
	backed  time.Time // when all of them had blocks last; zero if some have none
	// the disk below does not allocate without writing, and its own numbers say little of what files take
	vague    bool
	balloon  []int64   // sizes of its files, which are named by their place here
	unneeded int64     // bytes of the file that the last trim could not give back
	tight    time.Time // when there was a balloon last, after that was said; zero if there is room
	broken   bool      // the file system is read-only, and it was said
	said     string    // what fails

	stop chan struct{}
	done sync.WaitGroup
}

// An extent is bytes of the pool's file.
type extent struct{ at, length int64 }

// back begins to look after the pool in img, which is mounted at root. When it returns, records have blocks.
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
	// kernels before 6.0 decide themselves
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

// close ends it. The balloon stays as it is, for the next daemon and for the containers that go on in between.
func (b *backing) close() {
	close(b.stop)
	b.done.Wait()
	b.img.Close()
}

// begin makes the pool ready for work: there is no balloon yet, or that of the daemon before.
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

// StopWatching ends the watch of the pool's file, and CheckFile does once what the watch does each second; it reports
// whether the pool can still be written. Tests call them to see what happens without the watch.
func (d *Pool) StopWatching() {
	close(d.backing.stop)
	d.backing.done.Wait()
	d.backing.stop = make(chan struct{})
}

// CheckFile is described at StopWatching.
func (d *Pool) CheckFile() bool {
	d.backing.look()
	return !d.backing.broken
}

// look does once what a backing is for. What fails is tried again.
func (b *backing) look() {
	if b.isBroken() {
		return
	}
	b.tell(errors.Join(b.keepRecords(), b.giveBack(), b.weigh()))
}

// tell says what failed, once for all the times that it does.
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

// isBroken reports whether the file system has ended, and says so once.
func (b *backing) isBroken() bool {
	if readOnly(b.root) && !b.broken {
		b.broken = true
		b.log.Error("the containers' files are read-only, since the disk below has failed to write; see that it has "+
			"room and works, and restart the daemon, which starts containers again",
			"file", b.img.Name())
	}
	return b.broken
}

// readOnly reports whether nothing can be written to the file system of path.
func readOnly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// keepRecords sees that records have blocks. On a disk that cannot promise any they come with what is written, as for
// all else.
func (b *backing) keepRecords() error {
	list, err := chunks(b.root)
	if err != nil {
		return err
	}
	var wanted []extent
	for _, c := range list {
		for _, at := range c.at {
			if c.records {
				wanted = append(wanted, extent{int64(at), int64(c.length)})
			}
		}
	}
	if slices.Equal(wanted, b.records) && time.Since(b.backed) < lastKept {
		return nil
	}
	b.records, b.backed = wanted, time.Time{}
	for _, e := range wanted {
		for at := e.at; at < e.at+e.length; at += recordsPiece {
			length := min(recordsPiece, e.at+e.length-at)
			err := allocate(b.img, unix.FALLOC_FL_KEEP_SIZE, at, length)
			if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("keeping room for the file system's own records: %w", err)
			}
		}
	}
	b.backed = time.Now()
	blocks, err := b.blocks()
	b.vague = blocks < b.recordBytes() // some take the call for done, and allocate nothing
	return err
}

// allocate is fallocate. Some file systems end it early for a signal, and the Go runtime sends them.
func allocate(f *os.File, mode uint32, at, length int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), mode, at, length); err != unix.EINTR {
			return err
		}
	}
}

// recordBytes is how long the records are.
func (b *backing) recordBytes() (sum int64) {
	for _, e := range b.records {
		sum += e.length
	}
	return sum
}

// blocks is how many bytes of the disk below the pool's file takes.
func (b *backing) blocks() (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(b.img.Fd()), &st)
	return st.Blocks * 512, err
}

// about names what the kernel shows of chunks, in bytes; see its Documentation/ABI/testing/sysfs-fs-btrfs.
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

// enlargeRecords has a new file system take for its records at once what it would take soon. It begins with 8 MiB,
// with which it can hardly work; more it takes from what no chunk has, and that may be the balloon's by then.
func (b *backing) enlargeRecords() {
	host, _, err := DiskSpace(b.img.Name())
	if err != nil || host < b.keep+2*b.recordsNext() { // they would be written to where there are no blocks
		return
	}
	if all, err := b.space("metadata", "total_bytes"); err == nil && all < b.recordsNext()/2 {
		_ = balanceRecords(b.root) // without it there is less room for small files when the disk below is full
	}
}

// recordsNext is how many bytes the file system takes for records at once, of a small pool a tenth.
func (b *backing) recordsNext() int64 { return min(recordsChunk, b.size/10) }

// growth is how many bytes the file system may soon take for records, or 0 if half of what it takes at once is free
// in what it has.
func (b *backing) growth() (int64, error) {
	coming, err := b.space("metadata", "bytes_may_use")
	reserve, rerr := b.space("global_rsv_size")
	free, ferr := b.space("metadata", "total_bytes")
	err = errors.Join(err, rerr, ferr)
	for _, name := range []string{"bytes_used", "bytes_reserved", "bytes_pinned"} {
		used, uerr := b.space("metadata", name)
		free, err = free-used, errors.Join(err, uerr)
	}
	free -= min(coming, reserve) // the rest is what writers might need at worst, and comes and goes with them
	if err != nil || free > b.recordsNext()/2 {
		return 0, err
	}
	return b.recordsNext(), nil
}

// A fileSpace is how much of the pool is for files, in bytes.
type fileSpace struct {
	whole int64 // of all chunks for files
	// files have it, or had it and the file system does not use it for others yet; the balloon is among them
	held   int64
	coming int64 // written to files that have no place for it yet
	shut   int64 // free, but not to be used now
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

// free is what can be had without another chunk.
func (c fileSpace) free() int64 { return max(0, c.whole-c.held-c.coming-c.shut) }

// surplus is how many bytes the file has that nobody needs; below 0, it is what was promised to files and has no
// blocks.
func (b *backing) surplus(c fileSpace) (int64, error) {
	blocks, err := b.blocks()
	return blocks - c.held + b.ballooned() - b.recordBytes(), err
}

// giveBack gives the disk what files had that are gone, where there is so much free beside it that nobody misses it
// meanwhile. Where there is a balloon, that does it.
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
	list, err := chunks(b.root)
	unused := b.unused(list)
	for _, chunk := range list {
		if c, err = b.fileSpace(); err != nil {
			return err
		}
		if chunk.records || c.free()+unused < int64(chunk.length)+trimBeside {
			continue
		}
		if err := trim(b.root, chunk, trimLeast); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("giving back what was removed: %w", err)
		}
	}
	if err == nil {
		surplus, err = b.surplus(c)
	}
	b.unneeded = max(0, surplus)
	return err
}

// unused is how many bytes no chunk has.
func (b *backing) unused(list []chunk) int64 {
	unused := b.size
	for _, chunk := range list {
		unused -= int64(chunk.length) * int64(len(chunk.at))
	}
	return max(0, unused)
}

// room is how many bytes the disk below has for files, and free how many the file system believes to have.
func (b *backing) room() (room, free int64, err error) {
	list, err := chunks(b.root)
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

// weigh makes the balloon so large that no more is free than there is room for.
func (b *backing) weigh() error {
	if b.keep == 0 { // a disk below that has no size does not say what it has
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

// ballooned is the size of the balloon.
func (b *backing) ballooned() (sum int64) {
	for _, size := range b.balloon {
		sum += size
	}
	return sum
}

// findBalloon finds the balloon of the daemon before, whole or not. One that has gaps is as good as none.
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

// inflate makes the balloon larger by size, or by what there is.
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

// addPiece adds to the balloon: space that is taken and not written. What it held before goes back to the disk below.
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
	return b.empty(f, extent{at, size})
}

// empty takes the blocks from a part of the balloon, which has been allocated anew and holds nothing. Nobody else can
// be given its place.
func (b *backing) empty(f *os.File, part extent) error {
	places, err := unwritten(f, part)
	if err != nil {
		return err
	}
	list, err := chunks(b.root)
	if err != nil {
		return err
	}
	for _, place := range places {
		for _, at := range onDevice(list, place) {
			if err := allocate(b.img, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at,
				place.length); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
				return err
			}
		}
	}
	return nil
}

// onDevice is where a place among the file system's addresses is on the device, or nothing unless one chunk of files'
// has all of it.
func onDevice(list []chunk, place extent) (at []int64) {
	for _, c := range list {
		first := int64(c.logical)
		if c.records || place.at < first || place.at+place.length > first+int64(c.length) {
			continue
		}
		for _, begin := range c.at {
			at = append(at, int64(begin)+place.at-first)
		}
	}
	return at
}

// deflate makes the balloon smaller by up to size. Files go whole, since btrfs frees no part of what was taken at once.
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
	if err := awaitSync(b.root); err != nil { // it counts as taken until then
		return fmt.Errorf("giving free space: %w", err)
	}
	return nil
}
