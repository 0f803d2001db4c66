package btrfs

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Group is the number of a qgroup that counts what all its members count. Members are subvolumes. With simple quotas,
// a member that is removed stays one until nothing is left that was written through it, so the group counts each byte
// once for as long as anything has it. The zero Group is none.
type Group uint64

// The upper 16 bits of a number are the level; subvolumes have level 0.
const groupLevel = 1 << 48

// NewGroup returns the Group with the lower 48 bits of number.
func NewGroup(number uint64) Group { return Group(groupLevel | number&(groupLevel-1)) }

// Name returns the group's name in sysfs.
func (g Group) Name() string { return fmt.Sprintf("%d_%d", uint64(g)/groupLevel, uint64(g)%groupLevel) }

type btrfsQgroupAssignArgs struct{ assign, member, group uint64 }

// Make makes the group in the file system of root. An existing one is no error.
func (g Group) Make(root string) error {
	args := btrfsQgroupCreateArgs{create: 1, qgroup: uint64(g)}
	if err := dirIoctl(root, btrfsQgroupCreate, unsafe.Pointer(&args)); err != unix.EEXIST {
		return err
	}
	return nil
}

// Add makes the subvolume path a member. One that is a member already is no error. See LimitSubvolume for root.
func (g Group) Add(root, path string) error {
	id, err := SubvolumeID(path)
	if err != nil {
		return err
	}
	args := btrfsQgroupAssignArgs{assign: 1, member: id, group: uint64(g)}
	if err := dirIoctl(root, btrfsQgroupAssign, unsafe.Pointer(&args)); err != unix.EEXIST {
		return err
	}
	return nil
}

// Limit bounds what all members count together, in bytes; NoLimit removes the bound.
func (g Group) Limit(root string, bytes int64) error {
	args := btrfsLimitArgs{qgroup: uint64(g), flags: btrfsLimitRfer, maxRfer: uint64(bytes)}
	return dirIoctl(root, btrfsQgroupLimit, unsafe.Pointer(&args))
}

// GroupOf returns the group of the subvolume path, or 0.
func GroupOf(path string) (Group, error) {
	id, err := SubvolumeID(path)
	if err != nil {
		return 0, err
	}
	const offset = 16 // of a result's header, after the transaction and the object
	args := btrfsSearchArgs{tree: btrfsQuotaTree, minObject: id, maxObject: id, minType: btrfsGroupItem,
		maxType: btrfsGroupItem, maxOffset: math.MaxUint64, maxTransaction: math.MaxUint64, items: 1}
	if err := dirIoctl(path, btrfsTreeSearch, unsafe.Pointer(&args)); err != nil || args.items == 0 {
		return 0, err
	}
	return Group(binary.NativeEndian.Uint64(args.buf[offset:])), nil
}
