package diskpool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// quotaTries is how often quotas are turned on anew before the pool goes without.
const quotaTries = 3

// openQuota turns quotas on and sees that they hold. It has been seen that the kernel took every limit for a freshly
// made pool and held none of them, until they were turned off and on again; nothing it says of itself shows that.
func (d *Pool) openQuota() error {
	err := errors.New("quotas are on and hold nothing")
	for range quotaTries {
		if serr := setQuota(d.root, btrfsQuotaEnable); serr != nil {
			return serr
		}
		_ = awaitRescan(d.root) // EINVAL where there was nothing to count
		if err = d.proveQuota(); err == nil {
			return nil
		}
		if d.used() { // turning them off would take the limits from what is there
			return err
		}
		if serr := setQuota(d.root, btrfsQuotaDisable); serr != nil {
			return errors.Join(err, serr)
		}
	}
	return err
}

// The limit of the proof, and what is written against it, in bytes. Metadata takes a part of the limit.
const proofLimit, proofBytes = 1 << 20, 4 << 20

// proveQuota writes more into a limited subvolume than it may hold.
func (d *Pool) proveQuota() error {
	path := filepath.Join(d.root, "quota-proof")
	_ = destroySubvolume(path) // of a daemon that was killed here
	err := createSubvolume(path)
	if errors.Is(err, unix.ENOSPC) { // a full pool proves nothing, and keeps the limits it has
		return nil
	}
	if err != nil {
		return fmt.Errorf("trying the quotas: %w", err)
	}
	id, idErr := SubvolumeID(path)
	defer func() { _ = d.remove(path) }()
	if err := limitSubvolume(path, proofLimit); err != nil {
		return fmt.Errorf("trying the quotas: %w", err)
	}
	err = os.WriteFile(filepath.Join(path, "file"), bytes.Repeat([]byte{1}, proofBytes), 0o600)
	if errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
		if idErr == nil { // remove does not know of quotas before this says that they hold
			d.dropLater(id)
		}
		return nil
	}
	return fmt.Errorf("%d MiB could be written where %d MiB is the limit: %v", proofBytes>>20, proofLimit>>20, err)
}

// used reports whether there are workspaces or layers in the pool.
func (d *Pool) used() bool {
	for _, dir := range []string{d.workspaceDir(), d.LayerDir()} {
		if list, err := Names(dir); err == nil && len(list) > 0 {
			return true
		}
	}
	return false
}
