package artifacts

import (
	"context"
	"encoding/json"
	"mime"
	"path"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
)

// timestampSlack widens an exec's time, since file systems stamp with a clock that ticks every few ms.
const timestampSlack = 20 * time.Millisecond

// originProduced is the origin of a file that an exec made; the others are session's.
const originProduced = "produced"

// A cause is what a refresh follows: an exec that ended, or an act of the API with its origin. The
// zero value means that nobody in particular is known to have changed anything.
type cause struct {
	exec   proto.Exec
	origin string
	path   string // what the act of the API was on: a file, or a directory and all below; "" is all
}

// originOf is the origin of a file if the act of the API was on it, else "".
func (c cause) originOf(rel string) string {
	if c.path == "" || rel == c.path || strings.HasPrefix(rel, c.path+"/") {
		return c.origin
	}
	return ""
}

// refresh compares the job's directory with the books and brings those up to date. It returns the
// paths that are new or changed.
func (js *Jobs) refresh(ctx context.Context, s session.Files, j *job, by cause) ([]string, error) {
	j.fingerprint, j.listing, j.ownsManifest = "", nil, false // until all of this has come off
	// As root, since what an exec made may be closed to the default user. One more than the bound
	// tells a full job from one that has more.
	list, truncated, err := s.Walk(ctx, proto.UserRoot, proto.JobDir(j.rec.ID), MaxFiles+1)
	// Removed by the code itself or through the API, or something else is in its place.
	// No directory means no files, which is a fact for the books and no failure.
	if j.absent = noDirectory(err, proto.JobDir(j.rec.ID)); j.absent {
		list, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	j.ownsManifest = !j.absent && js.mayList(ctx, s, j, list, truncated)
	seen, changed, more := j.compare(list)
	gone := j.dropMissing(seen)
	was := j.rec.Truncated
	j.rec.Truncated = truncated || more
	if len(changed) > 0 {
		if err := js.recordChanged(ctx, s, j, by, changed); err != nil {
			return nil, err
		}
	}
	if !j.rec.Truncated && !j.absent {
		j.listing, j.fingerprint = list, proto.Gist(proto.JobDir(j.rec.ID), list)
	}
	// The common case for small commands: nothing is hashed, written or queued.
	if len(changed) == 0 && !gone && was == j.rec.Truncated {
		return nil, nil
	}
	j.listed = false
	js.save(j)
	return pathsOf(j, changed), nil
}

// noDirectory reports whether err says that there is no such directory, or something else in its place. That the
// container itself does not exist any more has the same code, and says nothing of its files: the workspace may be
// kept.
func noDirectory(err error, dir string) bool {
	if err == nil {
		return false
	}
	e := proto.AsError(err)
	return (e.Code == proto.NotFound || e.Code == proto.InvalidArgument) && e.Item == dir
}

// save queues the record for the ledger. What a crash loses of it, the next refresh finds again.
func (js *Jobs) save(j *job) {
	data, err := json.Marshal(j.rec) // now: the map may change before the ledger's turn
	js.queueWrite(j, func(tx *ledger.Tx) error {
		if err != nil {
			return err
		}
		return tx.Put(bucketJobs, j.key, json.RawMessage(data))
	})
}

// compare tells which files are new or not as they were, and whether there are more than the books take.
func (j *job) compare(list []proto.FileInfo) (seen map[string]bool, changed []proto.FileInfo, more bool) {
	seen = make(map[string]bool, len(list))
	room := MaxPathBytes
	for _, fi := range list {
		rel := j.rel(fi.Path)
		// Directories are not listed: they come and go with their files, and their change time
		// moves with every file in them.
		if rel == "" || rel == proto.ManifestName && j.ownsManifest || fi.Type == proto.TypeDirectory {
			continue
		}
		if len(seen) >= MaxFiles || len(fi.Path) > maxPath || len(rel) > room {
			more = true
			continue
		}
		seen[rel], room = true, room-len(rel)
		// Any write, chmod or rename moves the change time, so equal means untouched. The size is
		// asked too since the clock behind it ticks only every few ms.
		if was, ok := j.rec.Files[rel]; !ok || !was.Changed.Equal(fi.ChangedAt.Time) || was.SizeBytes != fi.SizeBytes {
			changed = append(changed, fi)
		}
	}
	return seen, changed, more
}

// rel is a path below the job's directory, or "" for one elsewhere.
func (j *job) rel(p string) string {
	rel, ok := strings.CutPrefix(p, proto.JobDir(j.rec.ID)+"/")
	if !ok {
		return ""
	}
	return rel
}

// dropMissing forgets files that are no longer there. Their stored copies stay: those are the
// owner's to delete.
func (j *job) dropMissing(seen map[string]bool) (any bool) {
	for p := range j.rec.Files {
		if !seen[p] {
			delete(j.rec.Files, p)
			any = true
		}
	}
	return any
}

// pathsOf is sorted, so that the answer to an exec does not depend on the order of the directory.
func pathsOf(j *job, list []proto.FileInfo) []string {
	paths := make([]string, len(list))
	for i, fi := range list {
		paths[i] = j.rel(fi.Path)
	}
	slices.Sort(paths)
	return paths
}

// recordChanged enters changed files with their hash and who made them.
func (js *Jobs) recordChanged(ctx context.Context, s session.Files, j *job, by cause, changed []proto.FileInfo) error {
	sums, err := hash(ctx, s, changed)
	if err != nil {
		return err
	}
	for i, fi := range changed {
		rel := j.rel(fi.Path)
		was, known := j.rec.Files[rel]
		// What the API did has its own origin and no exec, even if one was running meanwhile.
		origin, who := by.originOf(rel), ""
		if origin == "" {
			origin, who = originProduced, j.execAt(by, fi.ChangedAt.Time)
		}
		next := entry{Changed: fi.ChangedAt.Time, Artifact: proto.Artifact{
			Path: rel, Type: fi.Type, SizeBytes: fi.SizeBytes, SHA256: sums[i], Mode: fi.Mode, MediaType: mediaType(
				rel),
			Origin: origin, CreatedBy: who, CreatedAt: proto.At(js.cfg.Now()), ModifiedAt: fi.ModifiedAt,
		}}
		if known {
			// Who made a file first stays in the books through every later change.
			next.CreatedBy, next.CreatedAt, next.ChangedBy, next.Origin = was.CreatedBy, was.CreatedAt, who, was.Origin
			// Touched but with the same content: nobody changed it, and the stored copy still is
			// what the file is.
			if was.SHA256 == next.SHA256 {
				next.ChangedBy, next.FileID = was.ChangedBy, was.FileID
			}
		}
		j.rec.Files[rel] = next
	}
	return nil
}

// hash asks the guest for the SHA-256 of the regular files among list, "" for the others.
func hash(ctx context.Context, s session.Files, list []proto.FileInfo) ([]string, error) {
	sums := make([]string, len(list))
	var at []int
	for i, fi := range list {
		// A name that is not UTF-8 has a RawPath, and cannot be asked for by the path that JSON
		// carries.
		if fi.Type == proto.TypeFile && fi.SizeBytes <= maxHashed && fi.RawPath == nil {
			at = append(at, i)
		}
	}
	for batch := range slices.Chunk(at, hashBatch) {
		paths := make([]string, len(batch))
		for k, i := range batch {
			paths[k] = list[i].Path
		}
		got, err := s.Hash(ctx, proto.UserRoot, paths)
		if err != nil {
			return nil, err
		}
		for k, i := range batch {
			// A file that went away between walk and hash is not in the answer, and has no sum.
			sums[i] = got[paths[k]]
		}
	}
	return sums, nil
}

// execAt is the exec during which a file changed: the one that just ended if it fits, else the
// latest that does, else nobody we know of (a command that runs still).
func (j *job) execAt(by cause, at time.Time) string {
	// Execs may overlap. The one that just ended comes first: it is the one whose caller waits for
	// the list of what it made.
	if e := by.exec; e.ID != "" && within(at, e.StartedAt.Time, e.EndedAt.Time) {
		return e.ID
	}
	for _, r := range slices.Backward(j.recent) {
		if within(at, r.start, r.end) {
			return r.exec
		}
	}
	return ""
}

// within is generous by slack on both ends: a file written in the last moment of an exec may carry
// a stamp from just outside it.
func within(at, start, end time.Time) bool {
	return !at.Before(start.Add(-timestampSlack)) && (end.IsZero() || !at.After(end.Add(timestampSlack)))
}

// mediaType goes by the name alone: a manifest of thousands of files cannot open each.
func mediaType(name string) string {
	switch ext := strings.ToLower(path.Ext(name)); ext {
	// Ours before the system's for what commands make most: the tables of mime differ between
	// machines, and a manifest should not.
	case ".md":
		return "text/markdown"
	case ".py", ".sh", ".log", ".txt":
		return "text/plain"
	case ".parquet":
		return "application/vnd.apache.parquet"
	default:
		// Without parameters: a charset would be a guess about the content.
		if t, _, err := mime.ParseMediaType(mime.TypeByExtension(ext)); err == nil {
			return t
		}
	}
	return "application/octet-stream"
}
