package diskpool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"berth/runtime/btrfs"

	"golang.org/x/sys/unix"
)

// quotaTries is how often openQuota turns quotas on before the pool works without.
const quotaTries = 3

// openQuota turns quotas on and verifies that the kernel enforces them. We have seen a kernel accept every limit for
// a new pool and enforce none, until quotas were turned off and on again. Nothing that the kernel reports shows that
// state.
func (d *Pool) openQuota() error {
	err := errors.New("quotas are on and hold nothing")
	d.preferSimple()
	for range quotaTries {
		if serr := d.enableQuota(); serr != nil {
			return serr
		}
		_ = btrfs.AwaitRescan(d.root) // EINVAL if there was nothing to count
		if err = d.proveQuota(); err == nil {
			return nil
		}
		if d.used() { // turning quotas off would remove the limits of existing directories
			return err
		}
		if serr := btrfs.SetQuota(d.root, btrfs.QuotaDisable); serr != nil {
			return errors.Join(err, serr)
		}
	}
	return err
}

// preferSimple turns quotas of the full kind off where the pool can have simple ones instead. With those, the cost of a
// snapshot and of all writes beside it does not grow with the number of snapshots. A pool with containers keeps what it
// has, since its limits would be lost. So does a file system that others own: an older kernel does not mount it then.
func (d *Pool) preferSimple() {
	if d.simplePossible() && !d.used() && !btrfs.SimpleQuota(d.Fsid()) {
		_ = btrfs.SetQuota(d.root, btrfs.QuotaDisable)
	}
}

// simpleFrom is the first kernel whose simple quotas we trust: the first long-term one that has them.
var simpleFrom = [2]int{6, 12}

// simplePossible reports whether the pool could have simple quotas.
func (d *Pool) simplePossible() bool { return d.Kind == Loop && kernelFrom(simpleFrom) }

// kernelFrom reports whether the kernel has that version or a later one.
func kernelFrom(least [2]int) bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var is [2]int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &is[0], &is[1])
	return err == nil && slices.Compare(is[:], least[:]) >= 0
}

// enableQuota turns quotas on, of the kind that they have already, else of the best kind.
func (d *Pool) enableQuota() error {
	if d.simplePossible() && !d.used() && btrfs.SetQuota(d.root, btrfs.QuotaEnableSimple) == nil {
		return nil
	}
	return btrfs.SetQuota(d.root, btrfs.QuotaEnable)
}

// proofLimit is the limit of the test subvolume, and proofBytes is what is written against it, in bytes. Metadata
// takes a part of the limit.
const proofLimit, proofBytes = 1 << 20, 4 << 20

// proveQuota writes more to a limited subvolume than its limit, and fails if the kernel accepts that.
func (d *Pool) proveQuota() error {
	path := filepath.Join(d.root, "quota-proof")
	_ = btrfs.DestroySubvolume(path) // left by a daemon that was killed here
	err := btrfs.CreateSubvolume(path)
	if errors.Is(err, unix.ENOSPC) { // a full pool proves nothing, and keeps its limits
		return nil
	}
	if err != nil {
		return fmt.Errorf("trying the quotas: %w", err)
	}
	id, idErr := btrfs.SubvolumeID(path)
	defer func() { _ = d.remove(path) }()
	if err := btrfs.LimitSubvolume(d.root, path, proofLimit); err != nil {
		return fmt.Errorf("trying the quotas: %w", err)
	}
	err = os.WriteFile(filepath.Join(path, "file"), bytes.Repeat([]byte{1}, proofBytes), 0o600)
	if errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
		if idErr == nil { // remove does not drop qgroups until d.Quota is set
			d.dropLater(id)
		}
		return nil
	}
	return fmt.Errorf("%d MiB could be written where %d MiB is the limit: %v", proofBytes>>20, proofLimit>>20, err)
}

// used reports whether there are workspaces or layers in the pool.
func (d *Pool) used() bool {
	for _, dir := range []string{d.workspaceDir(), d.LayerDir(), d.keptDir(), d.snapshotDir()} {
		if list, err := Names(dir); err == nil && len(list) > 0 {
			return true
		}
	}
	return false
}
