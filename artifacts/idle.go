package artifacts

import (
	"cmp"
	"slices"
)

// maxIdleBytes bounds the books that nobody works on and that are in memory all the same, in bytes. What they spare
// is the walk of a directory in which nothing changed, so those of thousands of ordinary jobs should find room, and
// of the largest a dozen.
const maxIdleBytes = 64 << 20

// About what the parts of a job's books take in memory, in bytes, beside the texts that are counted.
const (
	jobBytes  = 1 << 10
	fileBytes = 1 << 10 // with a path, three IDs and a sum
	lineBytes = 256     // of the log
	pathBytes = 32      // of a line
	spanBytes = 128
)

// bytes is about what the books take in memory.
func (j *job) bytes() int {
	n := jobBytes + fileBytes*len(j.rec.Files) + spanBytes*len(j.recent)
	for _, e := range j.newest {
		n += lineBytes + len(e.Command) + len(e.Stderr) + pathBytes*len(e.Produced)
	}
	return n
}

// releaseJob ends the use of books by one who held or awaited the turn. Those of a job that never was are not kept:
// any ID can be asked for.
func (js *Jobs) releaseJob(j *job) {
	js.mu.Lock()
	j.users--
	if j.users == 0 && js.open[j.key] == j {
		if j.known() {
			js.uses++
			j.used, j.weight = js.uses, j.bytes()
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

// dropFromMemory takes books out of memory. Called with mu held.
func (js *Jobs) dropFromMemory(j *job) {
	delete(js.open, j.key)
	js.idle, j.weight = js.idle-j.weight, 0
}

// evictIdle closes the books that were idle for longest, until half of the room is free. They are in the ledger; what
// is lost is what the next daemon would not know either.
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
	// Before they are closed: whoever opens them again reads the ledger, which must have what is queued for them.
	if js.flush() != nil {
		return // whoever is told so by the ledger says it
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, o := range old {
		if js.idle <= maxIdleBytes/2 {
			return
		}
		if o.j.users == 0 && o.j.used == o.used && js.open[o.j.key] == o.j { // nobody has used them meanwhile
			js.dropFromMemory(o.j)
		}
	}
}
