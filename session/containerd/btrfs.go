package containerd

import (
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The btrfs ioctls that disk.go needs. Calling the kernel costs microseconds where
// starting the btrfs program costs milliseconds, on the path of every create.

// ioctl numbers of linux/btrfs.h: magic 0x94 in bits 8–15, the argument's size in
// bits 16–29, direction in bits 30–31.
const (
	btrfsSubvolCreate  = 0x5000940e
	btrfsSnapDestroy   = 0x5000940f
	btrfsQuotaCtl      = 0xc0109428
	btrfsQgroupCreate  = 0x4010942a
	btrfsQgroupLimit   = 0x8030942b
	btrfsInoLookup     = 0xd0009412
	btrfsFSInfo        = 0x8400941f
	btrfsRescanWait    = 0x942e
	btrfsStartSync     = 0x80089418
	btrfsQuotaEnable   = 1
	btrfsQuotaDisable  = 2
	btrfsLimitRfer     = 1 << 0
	btrfsFirstFree     = 256 // object ID of every subvolume's root directory
	btrfsNameMax       = 4087
	btrfsMagic         = unix.BTRFS_SUPER_MAGIC
	btrfsSubvolRootIno = 256
)

// The arguments of the ioctls above, laid out as the kernel has them.
type btrfsVolArgs struct {
	fd   int64
	name [btrfsNameMax + 1]byte
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

// isBtrfs reports whether path lies on btrfs.
func isBtrfs(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == btrfsMagic
}

// isSubvolume reports whether path is the root of a subvolume.
func isSubvolume(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Ino == btrfsSubvolRootIno && isBtrfs(path)
}

// createSubvolume makes the subvolume path. An existing one is an error, EEXIST.
func createSubvolume(path string) error {
	return subvolIoctl(path, btrfsSubvolCreate)
}

// destroySubvolume removes the subvolume path with all it holds, at once.
func destroySubvolume(path string) error {
	return subvolIoctl(path, btrfsSnapDestroy)
}

// subvolIoctl names path as the kernel wants it: an open parent and a name in it, so that no link in
// path's last part is ever followed.
func subvolIoctl(path string, req uint) error {
	args := btrfsVolArgs{}
	copy(args.name[:btrfsNameMax], filepath.Base(path))
	return dirIoctl(filepath.Dir(path), req, unsafe.Pointer(&args))
}

// setQuota turns qgroups on or off; that they are so already is no error.
func setQuota(root string, cmd uint64) error {
	args := btrfsQuotaArgs{cmd: cmd}
	return dirIoctl(root, btrfsQuotaCtl, unsafe.Pointer(&args))
}

// awaitRescan waits until the kernel has counted what there was before qgroups were turned on.
func awaitRescan(root string) error { return dirIoctl(root, btrfsRescanWait, nil) }

// limitSubvolume bounds what the subvolume path refers to, its metadata included, so that
// a flood of empty files hits the limit too.
func limitSubvolume(path string, bytes int64) error {
	args := btrfsLimitArgs{flags: btrfsLimitRfer, maxRfer: uint64(bytes)}
	return dirIoctl(path, btrfsQgroupLimit, unsafe.Pointer(&args))
}

// dropQgroup removes the qgroup of a subvolume that is gone. Kernels before
// 6.11 keep it for ever; newer ones remove it themselves and answer ENOENT.
func dropQgroup(root string, id uint64) error {
	args := btrfsQgroupCreateArgs{create: 0, qgroup: id}
	err := dirIoctl(root, btrfsQgroupCreate, unsafe.Pointer(&args))
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// startSync has the file system write what it has, in the background. What was removed is freed after that, and not before.
func startSync(root string) error {
	var transaction uint64
	return dirIoctl(root, btrfsStartSync, unsafe.Pointer(&transaction))
}

// subvolumeID is the number of the subvolume path, which is also that of its qgroup.
func subvolumeID(path string) (uint64, error) {
	args := btrfsLookupArgs{object: btrfsFirstFree}
	err := dirIoctl(path, btrfsInoLookup, unsafe.Pointer(&args))
	return args.tree, err
}

// dirIoctl calls an ioctl on the directory dir, which must not be a link.
func dirIoctl(dir string, req uint, arg unsafe.Pointer) error {
	fd, err := openAgain(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
