package diskpool

import (
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/runtime/btrfs"
)

// The kernel frees a removed subvolume in the background, after the next commit of the file system. By itself it
// commits every 30 s, and the qgroup of the subvolume is busy until then. With many removals, hundreds of qgroups
// would pile up, and each makes every removal and every commit slower. So some time after a removal the cleaner
// starts one commit for all removals of that time, and then drops the qgroups.

// tidyFirst is the delay after a removal. While nothing can be dropped the delay grows, up to tidyLast.
const tidyFirst, tidyLast = time.Second, 30 * time.Second

// A qgroupCleaner remembers the qgroups to drop.
type qgroupCleaner struct {
	running sync.WaitGroup // counts a timer that is set or running

	mu      sync.Mutex    // guards what follows
	dropped []uint64      // qgroups of removed subvolumes, which may still exist
	timer   *time.Timer   // nil if there is nothing to do
	wait    time.Duration // delay of the timer
	stopped bool
}

// dropLater drops the qgroup of a removed subvolume as soon as the kernel allows it.
func (d *Pool) dropLater(qgroup uint64) {
	t := &d.tidy
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = append(t.dropped, qgroup)
	t.wait = tidyFirst
	d.armTidy()
}

// With simple quotas, the qgroup of a removed subvolume is also busy while snapshots hold what was written through it.
// The kernel tries to drop it only once, when the subvolume goes, so the cleaner keeps it in mind.

// dropStale drops the qgroups that earlier daemons left: a daemon that is killed loses its list. It does not search
// file systems that others own.
func (d *Pool) dropStale() {
	if d.Kind != Loop {
		return
	}
	for _, id := range d.staleQgroups() {
		d.dropLater(id)
	}
}

// staleQgroups returns the qgroups of subvolumes that are gone.
func (d *Pool) staleQgroups() (stale []uint64) {
	groups, _ := Names(filepath.Join("/sys/fs/btrfs", d.Fsid(), "qgroups")) // kernels before 5.9 show no qgroups
	for _, group := range groups {
		number, ok := strings.CutPrefix(group, "0_")
		id, err := strconv.ParseUint(number, 10, 64)
		if ok && err == nil && id >= btrfs.FirstFree && btrfs.SubvolumeGone(d.root, id) {
			stale = append(stale, id)
		}
	}
	return stale
}

// armTidy sets the timer unless it is set. The caller holds the cleaner's mu.
func (d *Pool) armTidy() {
	t := &d.tidy
	if t.timer != nil || t.stopped || len(t.dropped) == 0 {
		return
	}
	t.running.Add(1)
	t.timer = time.AfterFunc(t.wait, func() {
		defer t.running.Done()
		d.tidyUp()
	})
}

// tidyUp drops the qgroups that can be dropped and starts the commit that the others wait for.
func (d *Pool) tidyUp() {
	less := d.sweep()
	_, _ = btrfs.StartSync(d.root) // on failure the kernel commits later by itself
	t := &d.tidy
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = nil
	if t.wait = min(2*t.wait, tidyLast); less {
		t.wait = tidyFirst
	}
	d.armTidy()
}

// sweep drops the qgroups that can be dropped, and reports whether there were any.
func (d *Pool) sweep() bool {
	t := &d.tidy
	t.mu.Lock()
	ids := t.dropped
	t.dropped = nil
	t.mu.Unlock()
	var left []uint64
	for _, id := range ids {
		if btrfs.DropQgroup(d.root, id) != nil {
			left = append(left, id)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = append(t.dropped, left...)
	return len(left) < len(ids)
}

// stop stops the timer and waits for a run that has begun.
func (t *qgroupCleaner) stop() {
	t.mu.Lock()
	t.stopped = true
	if t.timer != nil && t.timer.Stop() {
		t.running.Done()
	}
	t.mu.Unlock()
	t.running.Wait()
}
