package diskpool

import (
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The kernel frees a removed subvolume in the background, after the next commit of the file system, which comes every
// 30 s by itself. Its qgroup is busy until then. While containers come and go, hundreds would pile up, and each makes
// every removal and every commit dearer. So a while after a removal a commit is asked for, once for all the removals
// of that time, and then the qgroups are dropped.

// tidyFirst is how long after a removal that is, and tidyLast how long it becomes at most while nothing can be dropped.
const tidyFirst, tidyLast = time.Second, 30 * time.Second

// A tidier remembers what is to be dropped.
type qgroupCleaner struct {
	running sync.WaitGroup // for a timer that is set or at work

	mu      sync.Mutex    // guards what follows
	dropped []uint64      // qgroups whose subvolume is gone, and which may be there yet
	timer   *time.Timer   // nil if there is nothing to do
	wait    time.Duration // of the timer
	stopped bool
}

// dropLater has the qgroup of a removed subvolume dropped when the kernel lets go of it.
func (d *Pool) dropLater(qgroup uint64) {
	t := &d.tidy
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = append(t.dropped, qgroup)
	t.wait = tidyFirst
	d.armTidy()
}

// dropStale has the qgroups dropped that daemons before this one left: one that is killed forgets what it was to
// drop. Others' file systems are not searched.
func (d *Pool) dropStale() {
	if d.Kind != Loop {
		return
	}
	for _, id := range d.staleQgroups() {
		d.dropLater(id)
	}
}

// staleQgroups are the qgroups of subvolumes that are gone.
func (d *Pool) staleQgroups() (stale []uint64) {
	groups, _ := Names(filepath.Join("/sys/fs/btrfs", d.Fsid(), "qgroups")) // kernels before 5.9 show none
	for _, group := range groups {
		number, ok := strings.CutPrefix(group, "0_")
		id, err := strconv.ParseUint(number, 10, 64)
		if ok && err == nil && id >= btrfsFirstFree && subvolumeGone(d.root, id) {
			stale = append(stale, id)
		}
	}
	return stale
}

// armTidy sets the timer unless it is set. The tidier's mu is held.
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

// tidyUp drops what can be dropped and asks for the commit that the rest waits for.
func (d *Pool) tidyUp() {
	less := d.sweep()
	_, _ = startSync(d.root) // without it the kernel's own will come
	t := &d.tidy
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = nil
	if t.wait = min(2*t.wait, tidyLast); less {
		t.wait = tidyFirst
	}
	d.armTidy()
}

// sweep drops the qgroups that can be dropped, and reports whether any could.
func (d *Pool) sweep() bool {
	t := &d.tidy
	t.mu.Lock()
	ids := t.dropped
	t.dropped = nil
	t.mu.Unlock()
	var left []uint64
	for _, id := range ids {
		if dropQgroup(d.root, id) != nil {
			left = append(left, id)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = append(t.dropped, left...)
	return len(left) < len(ids)
}

// stop ends the timer and waits for what it may be doing.
func (t *qgroupCleaner) stop() {
	t.mu.Lock()
	t.stopped = true
	if t.timer != nil && t.timer.Stop() {
		t.running.Done()
	}
	t.mu.Unlock()
	t.running.Wait()
}
