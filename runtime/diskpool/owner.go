package diskpool

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtime/btrfs"
)

// What an owner has in the pool is counted by one qgroup above those of its workspaces, layers and snapshots. With
// simple quotas, each byte counts once, for as long as any of them has it. Quotas of the full kind count nothing for
// owners: the kernel would have to count all files anew whenever a copy is made.

// groupOf returns the group of an owner. It depends on the name alone, so nothing has to remember it. Two owners never
// share 48 bits of a hash by chance.
func groupOf(owner string) btrfs.Group {
	sum := sha256.Sum256([]byte(owner))
	return btrfs.NewGroup(binary.LittleEndian.Uint64(sum[:]))
}

// countsOwners reports whether the pool counts what owners have.
func (d *Pool) countsOwners() bool { return d.Quota && d.simple }

// LimitOwners bounds what each owner may have in the pool, in bytes; 0 is no bound. It also removes the groups of
// owners that have nothing. Call it before the pool is used.
func (d *Pool) LimitOwners(bytes int64) error {
	if bytes > 0 && !d.countsOwners() {
		return fmt.Errorf("this disk pool cannot bound what an owner has: that takes a pool in a file of the daemon's "+
			"own, made on Linux %d.%d or later", simpleFrom[0], simpleFrom[1])
	}
	d.ownerBytes = bytes
	if !d.countsOwners() {
		return nil
	}
	names, err := Names(filepath.Join("/sys/fs/btrfs", d.Fsid(), "qgroups"))
	for _, name := range names {
		number, is := strings.CutPrefix(name, "1_")
		id, notNumber := strconv.ParseUint(number, 10, 64)
		if !is || notNumber != nil {
			continue
		}
		g := btrfs.NewGroup(id)
		if btrfs.DropQgroup(d.root, uint64(g)) != nil { // it has members
			err = errors.Join(err, d.limitGroup(g))
		}
	}
	return err
}

// limitGroup gives the group of an owner its bound.
func (d *Pool) limitGroup(g btrfs.Group) error {
	limit := d.ownerBytes
	if limit == 0 {
		limit = btrfs.NoLimit
	}
	return g.Limit(d.root, limit)
}

// Own counts a workspace, layer or part of a snapshot for an owner, for as long as anything has its bytes. A second
// call changes nothing. Without an owner nobody pays.
func (d *Pool) Own(owner, path string) error {
	if owner == "" || !d.countsOwners() || !btrfs.IsSubvolume(path) {
		return nil
	}
	g := groupOf(owner)
	if _, known := d.owners.Load(g); !known {
		if err := errors.Join(g.Make(d.root), d.limitGroup(g)); err != nil {
			return fmt.Errorf("counting the disk space of an owner: %w", err)
		}
		d.owners.Store(g, true)
	}
	if err := g.Add(d.root, path); err != nil {
		return fmt.Errorf("counting disk space for its owner: %w", err)
	}
	return nil
}

// OwnerGroup returns the directory in sysfs of the group that counts the subvolume path, or "" if no bound holds for
// it.
func (d *Pool) OwnerGroup(path string) string {
	if d.ownerBytes == 0 {
		return ""
	}
	g, err := btrfs.GroupOf(path)
	if g == 0 || err != nil {
		return ""
	}
	return d.groupDir(g)
}

func (d *Pool) groupDir(g btrfs.Group) string {
	return filepath.Join("/sys/fs/btrfs", d.Fsid(), "qgroups", g.Name())
}

// OwnerSpace returns what an owner has in the pool, each byte counted once, and its bound, which may be 0. counted is
// false if the pool does not count that.
func (d *Pool) OwnerSpace(owner string) (space Space, counted bool) {
	if !d.countsOwners() {
		return Space{}, false
	}
	used, err := d.usedBy(groupOf(owner))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without a group it has nothing
		return Space{}, false
	}
	space.Limit, space.Used = d.ownerBytes, used
	return space, true
}

// usedBy returns the bytes that a group counts.
func (d *Pool) usedBy(g btrfs.Group) (bytes int64, err error) {
	for _, name := range []string{"referenced", "rsv_data"} { // what is reserved is counted at the next commit
		text, err := os.ReadFile(filepath.Join(d.groupDir(g), name))
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// An owner at its bound must be able to stop and start containers, else it could not remove anything from them. That
// takes small changes of the disk, for which the bound is raised for the moment.

// liftBytes is how far the bound of an owner is raised: room for one small change, and little for programs that write
// meanwhile.
const liftBytes = 1 << 20

// BeyondBound calls do, which changes little in the subvolume path, beyond its owner's bound if it must.
func (d *Pool) BeyondBound(path string, do func() error) error {
	err := do()
	if !errors.Is(err, unix.EDQUOT) || d.ownerBytes == 0 {
		return err
	}
	g, none := btrfs.GroupOf(path)
	if g == 0 || none != nil {
		return err
	}
	return d.lifted(g, do)
}

// WithRoom calls do, which starts a sandbox, beyond the bound of its owner if little is left: a guest writes, too.
func (d *Pool) WithRoom(owner string, do func() error) error {
	if d.ownerBytes == 0 || owner == "" {
		return do()
	}
	space, counted := d.OwnerSpace(owner)
	if !counted || space.Limit-space.Used > liftBytes {
		return do()
	}
	return d.lifted(groupOf(owner), do)
}

// lifted calls do while the group's bound is raised.
func (d *Pool) lifted(g btrfs.Group, do func() error) error {
	count := func(n int) error {
		d.lifting.Lock()
		defer d.lifting.Unlock()
		if d.lifts == nil {
			d.lifts = map[btrfs.Group]int{}
		}
		if d.lifts[g] += n; d.lifts[g] > 0 {
			used, err := d.usedBy(g)
			return errors.Join(err, g.Limit(d.root, max(d.ownerBytes, used)+liftBytes))
		}
		delete(d.lifts, g)
		return d.limitGroup(g)
	}
	if err := count(1); err != nil {
		return errors.Join(err, count(-1))
	}
	return errors.Join(do(), count(-1))
}
