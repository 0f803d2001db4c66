// Package btrfs has the ioctls of btrfs that the disk pool needs: for subvolumes, quotas, commits, and chunks, the
// ranges of the device that hold file content or the file system's own records. An ioctl takes microseconds; the
// btrfs program would take milliseconds to start, for every create. Packages diskpool and meter call this package.
package btrfs

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl numbers of linux/btrfs.h: magic 0x94 in bits 8–15, the argument's size in
// bits 16–29, direction in bits 30–31.
const (
	btrfsSubvolCreate = 0x5000940e
	btrfsSnapDestroy  = 0x5000940f
	btrfsSnapCreate   = 0x50009417 // BTRFS_IOC_SNAP_CREATE_V2
	btrfsQuotaCtl     = 0xc0109428
	btrfsQgroupCreate = 0x4010942a
	btrfsQgroupLimit  = 0x8030942b
	btrfsQgroupAssign = 0x40189429
	btrfsTreeSearch   = 0xd0009411
	btrfsInoLookup    = 0xd0009412
	btrfsFSInfo       = 0x8400941f
	btrfsRescanWait   = 0x942e
	btrfsStartSync    = 0x80089418
	btrfsBalance      = 0xc4009420
	btrfsWaitSync     = 0x40089416
	fileTrim          = 0xc0185879 // FITRIM of linux/fs.h
	fileMap           = 0xc020660b // FS_IOC_FIEMAP of linux/fs.h
	btrfsSend         = 0x40489426
	btrfsSubvolFlags  = 0x4008941a // BTRFS_IOC_SUBVOL_SETFLAGS
	QuotaEnable       = 1
	QuotaDisable      = 2
	QuotaEnableSimple = 4
	btrfsLimitRfer    = 1 << 0
	FirstFree         = 256 // object ID of every subvolume's root directory
	btrfsNameMax      = 4087
	btrfsNameMaxV2    = 4039
	btrfsReadOnly     = 1 << 1 // BTRFS_SUBVOL_RDONLY
	btrfsRootTree     = 1      // object ID of the tree of trees
	// type of the item in it that names a subvolume's parent; removed with the subvolume, before the content
	btrfsRootBackref = 144
	btrfsQuotaTree   = 8   // object ID of the tree of qgroups,
	btrfsGroupItem   = 246 // and the type of its items whose object is a member and whose offset is its group
	btrfsChunkTree   = 3   // object ID of the tree of chunks,
	btrfsFirstChunk  = 256 // the one object in it
	btrfsChunkItem   = 228 // and the type of its items, whose offsets are the chunks' logical addresses
	// types of chunks that hold records; Chunks that have only the other bit hold file content
	btrfsMetadata        = 1<<1 | 1<<2
	btrfsBalanceSystem   = 1 << 1
	btrfsBalanceMetadata = 1 << 2
	btrfsMagic           = unix.BTRFS_SUPER_MAGIC
	btrfsSubvolRootIno   = 256
)

// The arguments of the ioctls above, in the kernel's layout.
type btrfsVolArgs struct {
	fd   int64
	name [btrfsNameMax + 1]byte
}

// btrfsVolArgsV2 is struct btrfs_ioctl_vol_args_v2.
type btrfsVolArgsV2 struct {
	fd          int64
	transaction uint64
	flags       uint64
	_           [4]uint64
	name        [btrfsNameMaxV2 + 1]byte
}

type btrfsQuotaArgs struct{ cmd, status uint64 }

type btrfsQgroupCreateArgs struct{ create, qgroup uint64 }

type btrfsLimitArgs struct {
	qgroup                                    uint64
	flags, maxRfer, maxExcl, rsvRfer, rsvExcl uint64
}

type btrfsLookupArgs struct {
	tree, object uint64
	name         [4080]byte
}

type btrfsSearchArgs struct {
	tree, minObject, maxObject, minOffset, maxOffset, minTransaction, maxTransaction uint64

	minType, maxType, items, _ uint32 // items: wanted, then found

	_   [4]uint64
	buf [3992]byte
}

// btrfsBalanceArgs has flags and state, then 1008 bytes of filters and progress.
type btrfsBalanceArgs struct {
	flags, state uint64
	_            [1008]byte
}

// fileMapRoom is how many extents one call returns.
const fileMapRoom = 32

// fileMapArgs is struct fiemap of linux/fiemap.h with room for its extents.
type fileMapArgs struct {
	start, length          uint64
	flags, mapped, room, _ uint32
	extents                [fileMapRoom]struct {
		logical, physical, length uint64
		_                         [2]uint64
		flags                     uint32
		_                         [3]uint32
	}
}

// Is reports whether path lies on btrfs.
func Is(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == btrfsMagic
}

// IsSubvolume reports whether path is the root of a subvolume.
func IsSubvolume(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Ino == btrfsSubvolRootIno && Is(path)
}

// CreateSubvolume makes the subvolume path. An existing one is an error, EEXIST.
func CreateSubvolume(path string) error {
	return subvolIoctl(path, btrfsSubvolCreate)
}

// DestroySubvolume removes the subvolume path with its content, at once.
func DestroySubvolume(path string) error {
	return subvolIoctl(path, btrfsSnapDestroy)
}

// Snapshot makes the subvolume path, which shares all content with the subvolume source as it is now. The kernel
// commits the file system for it. An existing path is an error, EEXIST. Both must be on the same file system.
func Snapshot(source, path string, readOnly bool) error {
	fd, err := OpenAgain(source, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open", Path: source, Err: err}
	}
	defer unix.Close(fd)
	args := btrfsVolArgsV2{fd: int64(fd)}
	if readOnly {
		args.flags = btrfsReadOnly
	}
	copy(args.name[:btrfsNameMaxV2], filepath.Base(path))
	return dirIoctl(filepath.Dir(path), btrfsSnapCreate, unsafe.Pointer(&args))
}

// subvolIoctl passes path as the kernel expects it: an open parent directory and a name in it. The kernel never
// follows a link in the last part of the path.
func subvolIoctl(path string, req uint) error {
	args := btrfsVolArgs{}
	copy(args.name[:btrfsNameMax], filepath.Base(path))
	return dirIoctl(filepath.Dir(path), req, unsafe.Pointer(&args))
}

// SetQuota turns quotas on or off. It is no error if they are so already, in whichever mode. Kernels before 6.7 refuse
// QuotaEnableSimple.
//
// With QuotaEnable a subvolume counts all bytes that it refers to. The kernel then looks for all other subvolumes that
// share a block whenever one changes, which takes longer with every snapshot. With QuotaEnableSimple a subvolume counts
// the bytes that were written through it and still exist, in it or in a snapshot of it. That costs the same always.
func SetQuota(root string, cmd uint64) error {
	args := btrfsQuotaArgs{cmd: cmd}
	return dirIoctl(root, btrfsQuotaCtl, unsafe.Pointer(&args))
}

// SimpleQuota reports whether the quotas of the file system with that name in sysfs are on, and of the simple kind.
func SimpleQuota(fsid string) bool {
	mode, err := os.ReadFile(filepath.Join("/sys/fs/btrfs", fsid, "qgroups", "mode"))
	return err == nil && strings.TrimSpace(string(mode)) == "squota"
}

// Usage returns the bytes that a subvolume refers to, and those that no other subvolume refers to. group is the number
// of the subvolume, and fsid the name of the file system in sysfs. Quotas must be on, and not of the simple kind.
// Kernels before 5.9 do not tell.
func Usage(fsid string, group uint64) (refers, exclusive int64, err error) {
	var n [2]int64
	for i, name := range []string{"referenced", "exclusive"} {
		text, err := os.ReadFile(filepath.Join("/sys/fs/btrfs", fsid, "qgroups", fmt.Sprintf("0_%d", group), name))
		if err != nil {
			return 0, 0, err
		}
		if n[i], err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return 0, 0, err
		}
	}
	return n[0], n[1], nil
}

// AwaitRescan waits until the kernel has counted the data from before qgroups were turned on.
func AwaitRescan(root string) error { return dirIoctl(root, btrfsRescanWait, nil) }

// NoLimit is the argument of LimitSubvolume that removes a limit.
const NoLimit = -1

// LimitSubvolume bounds the bytes that the subvolume path refers to, its metadata included. A flood of empty files
// hits the limit too. The change is made at root, which no bound holds for: at path, a full subvolume would refuse it.
func LimitSubvolume(root, path string, bytes int64) error {
	id, err := SubvolumeID(path)
	if err != nil {
		return err
	}
	args := btrfsLimitArgs{qgroup: id, flags: btrfsLimitRfer, maxRfer: uint64(bytes)}
	return dirIoctl(root, btrfsQgroupLimit, unsafe.Pointer(&args))
}

// DropQgroup removes the qgroup of a removed subvolume. Kernels before 6.11 keep such a qgroup for ever; newer ones
// remove it themselves and answer ENOENT.
func DropQgroup(root string, id uint64) error {
	args := btrfsQgroupCreateArgs{create: 0, qgroup: id}
	err := dirIoctl(root, btrfsQgroupCreate, unsafe.Pointer(&args))
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// StartSync starts a commit of the file system in the background. The kernel frees removed data only after a commit.
func StartSync(root string) (transaction uint64, err error) {
	err = dirIoctl(root, btrfsStartSync, unsafe.Pointer(&transaction))
	return transaction, err
}

// AwaitSync commits the file system and waits for the end of the commit.
func AwaitSync(root string) error {
	transaction, err := StartSync(root)
	if err != nil {
		return err
	}
	return dirIoctl(root, btrfsWaitSync, unsafe.Pointer(&transaction))
}

// SubvolumeID returns the number of the subvolume path, which is also the number of its qgroup.
func SubvolumeID(path string) (uint64, error) {
	args := btrfsLookupArgs{object: FirstFree}
	err := dirIoctl(path, btrfsInoLookup, unsafe.Pointer(&args))
	return args.tree, err
}

// btrfsSendArgs is struct btrfs_ioctl_send_args.
type btrfsSendArgs struct {
	to            int64
	count         uint64
	sources       *uint64
	parent, flags uint64
	version       uint32
	_             [28]byte
}

// Send writes the read-only subvolume path to a blocking descriptor, for `btrfs receive`. Content that it shares with
// other read-only subvolumes, by their numbers, is named and not sent. Send compares it with none of them, as for an
// incremental stream: the kernel refuses that for some copies of one subvolume that have changed since.
func Send(path string, others []uint64, to int) error {
	args := btrfsSendArgs{to: int64(to), count: uint64(len(others)), sources: unsafe.SliceData(others)}
	err := dirIoctl(path, btrfsSend, unsafe.Pointer(&args))
	runtime.KeepAlive(others)
	if err != nil {
		return fmt.Errorf("sending %s: %w", path, err)
	}
	return nil
}

// SetReadOnly makes the subvolume path read-only, or writable.
func SetReadOnly(path string, readOnly bool) error {
	var flags uint64
	if readOnly {
		flags = btrfsReadOnly
	}
	if err := dirIoctl(path, btrfsSubvolFlags, unsafe.Pointer(&flags)); err != nil {
		return fmt.Errorf("changing whether %s is read-only: %w", path, err)
	}
	return nil
}

// SubvolumeGone reports whether the file system of root has no subvolume with that number.
func SubvolumeGone(root string, id uint64) bool {
	args := btrfsSearchArgs{
		tree: btrfsRootTree, minObject: id, maxObject: id, minType: btrfsRootBackref, maxType: btrfsRootBackref,
		maxOffset: math.MaxUint64, maxTransaction: math.MaxUint64, items: 1,
	}
	err := dirIoctl(root, btrfsTreeSearch, unsafe.Pointer(&args))
	return err == nil && args.items == 0
}

// A Chunk is a range of the file system's own addresses, either for file content or for records, with its place on
// the device. Units are bytes.
type Chunk struct {
	Logical, Length uint64
	Records         bool
	At              []uint64 // offsets on the device; more than one if the chunk is stored twice
}

// Chunks lists the Chunks that the file system of root has allocated.
func Chunks(root string) ([]Chunk, error) {
	// bytes of a result's header, of a chunk item before its stripes, and of a stripe
	const header, stripes, stripe = 32, 48, 32
	var all []Chunk
	args := btrfsSearchArgs{
		tree: btrfsChunkTree, minObject: btrfsFirstChunk, maxObject: btrfsFirstChunk, minType: btrfsChunkItem,
		maxType:   btrfsChunkItem,
		maxOffset: math.MaxUint64, maxTransaction: math.MaxUint64,
	}
	for {
		args.items = math.MaxUint32
		if err := dirIoctl(root, btrfsTreeSearch, unsafe.Pointer(&args)); err != nil || args.items == 0 {
			return all, err
		}
		rest := args.buf[:]
		for range args.items {
			c := Chunk{Logical: binary.NativeEndian.Uint64(rest[16:])}
			item := rest[header:][:binary.NativeEndian.Uint32(rest[28:])]
			c.Length = binary.LittleEndian.Uint64(item)
			c.Records = binary.LittleEndian.Uint64(item[24:])&btrfsMetadata != 0
			for n := range int(binary.LittleEndian.Uint16(item[44:])) {
				c.At = append(c.At, binary.LittleEndian.Uint64(item[stripes+n*stripe+8:]))
			}
			all = append(all, c)
			args.minOffset = c.Logical + 1
			rest = rest[header+len(item):]
		}
	}
}

// Trim returns free space to the device below: that of the chunk c, in pieces of least bytes or more, and the space
// that belongs to no chunk.
func Trim(root string, c Chunk, least uint64) error {
	args := struct{ start, length, least uint64 }{c.Logical, c.Length, least}
	return dirIoctl(root, fileTrim, unsafe.Pointer(&args))
}

// BalanceRecords rewrites all records, into Chunks of the size that the kernel uses now.
func BalanceRecords(root string) error {
	args := btrfsBalanceArgs{flags: btrfsBalanceSystem | btrfsBalanceMetadata}
	return dirIoctl(root, btrfsBalance, unsafe.Pointer(&args))
}

// Unwritten returns the file system's addresses of those ranges of part that are allocated and were never written.
func Unwritten(f *os.File, part Extent) ([]Extent, error) {
	// FIEMAP_EXTENT_LAST and _UNWRITTEN; with other flags the place may be unknown or shared
	const isLast, never = 0x1, 0x800
	var found []Extent
	for end := part.At + part.Length; part.At < end; {
		args := fileMapArgs{start: uint64(part.At), length: uint64(end - part.At), room: fileMapRoom}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fileMap, uintptr(unsafe.Pointer(&args))); errno != 0 {
			return nil, errno
		}
		if args.mapped == 0 {
			break
		}
		for _, e := range args.extents[:args.mapped] {
			// An extent that begins before the part is older than it.
			if skip := max(0, part.At-int64(e.logical)); e.flags&^isLast == never && skip < int64(e.length) {
				found = append(found, Extent{int64(e.physical) + skip, min(int64(e.length)-skip, end-part.At)})
			}
			part.At = int64(e.logical + e.length)
		}
	}
	return found, nil
}

// An Extent is a range of bytes of a file or of a device.
type Extent struct{ At, Length int64 }

// Fsid returns the name of the file system of root in sysfs; "" if that is not btrfs.
func Fsid(root string) string {
	var info [1024]byte // struct btrfs_ioctl_fs_info_args: two numbers of eight bytes, then the UUID
	if err := dirIoctl(root, btrfsFSInfo, unsafe.Pointer(&info)); err != nil {
		return ""
	}
	h := hex.EncodeToString(info[16:32])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// dirIoctl calls an ioctl on the directory dir, which must not be a link.
func dirIoctl(dir string, req uint, arg unsafe.Pointer) error {
	fd, err := OpenAgain(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// OpenAgain calls unix.Open, and again whenever a signal interrupts it.
func OpenAgain(path string, flags int) (fd int, err error) {
	fd, err = unix.Open(path, flags, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(path, flags, 0)
	}
	return fd, err
}
