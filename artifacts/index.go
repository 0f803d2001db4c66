package artifacts

import (
	"maps"
	"math"
	"slices"
	"strings"

	"berth/proto"
)

// An index is the files of a job. Reading or changing one of them does not cost more the more there are.
type index struct {
	files map[string]entry // by path below the job's directory
	bytes int64            // sum of their sizes, each counted up to maxCounted
	// bytes of all paths
	pathBytes int
	outputs   map[string]int    // number of files at or below each entry of a directory with outputs
	texts     map[string][]byte // of entries in the copy of the manifest, as far as they were needed
	unsaved   map[string]bool   // paths whose records in the ledger are old

	order []string // all paths in order, but for those in moved
	moved []string // paths that came or went since order was made
}

// maxCounted bounds the bytes of one file in a job's sum, which therefore cannot overflow: a sparse file has any size.
const maxCounted = math.MaxInt64 / MaxFiles

// newIndex makes the index of files that the ledger has.
func newIndex(files map[string]entry) *index {
	x := &index{files: files, outputs: map[string]int{}, texts: map[string][]byte{}, unsaved: map[string]bool{}}
	for p, e := range files {
		x.count(p, e, 1)
	}
	x.order = slices.Sorted(maps.Keys(files))
	return x
}

// count adds a file to the sums, or subtracts it.
func (x *index) count(path string, e entry, sign int) {
	x.bytes += int64(sign) * min(e.SizeBytes, maxCounted)
	x.pathBytes += sign * len(path)
	top, rest, ok := strings.Cut(path, "/")
	if !ok || top != proto.OutputsName && top != earlierOutputs {
		return
	}
	name, _, _ := strings.Cut(rest, "/")
	dir := top + "/" + name
	if x.outputs[dir] += sign; x.outputs[dir] == 0 {
		delete(x.outputs, dir)
	}
}

// hasOutput reports whether there is dir, as a file or link, or something below it. dir is an entry of a directory with
// outputs.
func (x *index) hasOutput(dir string) bool { return x.outputs[dir] > 0 }

// set adds a file or replaces it.
func (x *index) set(path string, e entry) {
	was, ok := x.files[path]
	if ok {
		x.count(path, was, -1)
	} else {
		x.moved = append(x.moved, path)
	}
	x.files[path] = e
	x.count(path, e, 1)
	x.unsaved[path] = true
	delete(x.texts, path)
}

// remove removes a file, if it is there.
func (x *index) remove(path string) {
	was, ok := x.files[path]
	if !ok {
		return
	}
	x.count(path, was, -1)
	x.moved = append(x.moved, path)
	delete(x.files, path)
	x.unsaved[path] = true
	delete(x.texts, path)
}

// fewMoved is how many paths are put into their order one by one.
const fewMoved = 64

// paths returns all paths in order. The caller does not change the list.
func (x *index) paths() []string {
	if len(x.moved) > fewMoved {
		x.order = slices.AppendSeq(x.order[:0], maps.Keys(x.files))
		slices.Sort(x.order)
		x.moved = nil
	}
	for _, p := range x.moved {
		at, found := slices.BinarySearch(x.order, p)
		_, is := x.files[p]
		switch {
		case is && !found:
			x.order = slices.Insert(x.order, at, p)
		case found && !is:
			x.order = slices.Delete(x.order, at, at+1)
		}
	}
	x.moved = nil
	return x.order
}
