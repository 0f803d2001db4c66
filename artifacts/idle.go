package artifacts

import (
	"cmp"
	"slices"
)

// maxIdleBytes bounds the memory of manifests that are not in use, in bytes. They spare the walk of a directory
// without changes, so there should be room for those of thousands of ordinary jobs, or of a dozen of the largest.
const maxIdleBytes = 64 << 20

// Approximate memory of the parts of a manifest, in bytes, without the texts.
const (
	jobBytes  = 1 << 10
	fileBytes = 2 << 10 // with a path, three IDs and a sum, and as text
	lineBytes = 256     // of the log
	pathBytes = 32      // of a line
	spanBytes = 128
)

// releaseJob ends the use of a job by a goroutine that held or awaited its lock. A job that never existed is not kept
// in memory, since clients can ask for any ID.
func (js *Jobs) releaseJob(j *job) {
	js.mu.Lock()
	j.users--
	if j.users == 0 && js.open[j.key] == j {
		if j.known() {
			js.uses++
			files := len(j.files) + len(j.unlisted) + len(j.told)
			j.used, j.weight = js.uses, jobBytes+fileBytes*files+spanBytes*len(j.recent)
			for _, e := range j.newest {
				j.weight += lineBytes + len(e.Command) + len(e.Stderr) + pathBytes*len(e.Produced)
			}
			for _, text := range j.lines {
				j.weight += len(text)
			}
			js.idle += j.weight
		} else {
			js.dropFromMemory(j)
		}
	}
	full := js.idle > maxIdleBytes
	js.mu.Unlock()
	if full {
		js.evictIdle()
	}
}

// dropFromMemory removes a job from memory. Called with mu held.
func (js *Jobs) dropFromMemory(j *job) {
	delete(js.open, j.key)
	js.idle, j.weight = js.idle-j.weight, 0
}

// evictIdle removes the jobs that were idle for longest from memory, until half of the room is free. The ledger has
// them; what it lacks, the next daemon would lack too.
func (js *Jobs) evictIdle() {
	type rest struct {
		j    *job
		used uint64
	}
	var old []rest
	js.mu.Lock()
	for _, j := range js.open {
		if j.users == 0 {
			old = append(old, rest{j, j.used})
		}
	}
	js.mu.Unlock()
	slices.SortFunc(old, func(a, b rest) int { return cmp.Compare(a.used, b.used) })
	// Before they are removed: the next use reads the ledger, which must have their queued writes.
	if js.flush() != nil {
		return // the ledger reports the failure itself
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, o := range old {
		if js.idle <= maxIdleBytes/2 {
			return
		}
		if o.j.users == 0 && o.j.used == o.used && js.open[o.j.key] == o.j { // not used meanwhile
			js.dropFromMemory(o.j)
		}
	}
}
