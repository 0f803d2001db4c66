package artifacts

import (
	"context"
	"mime"
	"path"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/session"
	"berth/session/filework"
)

// timestampSlack widens the time of an exec, since file systems stamp with a clock that ticks every few milliseconds.
const timestampSlack = 20 * time.Millisecond

// originProduced is the origin of a file that an exec made; session has the other origins.
const originProduced = "produced"

// A cause is what a refresh follows: the end of an exec, or an API call with its origin. The zero value is neither.
type cause struct {
	exec   proto.Exec
	origin string
	path   string // the file or directory that the API call changed; "" is everything
}

// refresh compares the job's directory with the record and updates the record. It returns the new and changed paths.
func (js *Jobs) refresh(ctx context.Context, s session.Files, j *job, by cause) ([]string, error) {
	since := j.fingerprint
	j.fingerprint = "" // until all of this has succeeded
	found, err := js.look(ctx, s, j, since)
	if err != nil {
		return nil, err
	}
	// Stored copies of files that are gone stay: only the owner deletes those.
	for _, p := range found.gone {
		j.remove(p)
	}
	was := j.rec.Truncated
	j.rec.Truncated = found.truncated
	if len(found.changed) > 0 {
		if err := js.recordChanged(ctx, s, j, by, found.changed); err != nil {
			return nil, err
		}
	}
	if !j.absent {
		j.fingerprint = found.state
	}
	// The common case for small commands: nothing is hashed, written or queued.
	if len(found.changed) == 0 && len(found.gone) == 0 && was == j.rec.Truncated {
		return nil, nil
	}
	j.listed = false
	js.save(j)
	paths := make([]string, len(found.changed))
	for i, fi := range found.changed {
		paths[i] = j.rel(fi.Path)
	}
	slices.Sort(paths) // the answer does not depend on the order of the directory
	return paths, nil
}

// A difference is what has changed in a job's directory since the record was written.
type difference struct {
	changed   []proto.FileInfo // new ones, too
	gone      []string         // as in the record
	truncated bool             // there is more than a manifest holds
	state     string           // as filework.Walked.State
}

// look compares the job's directory with the record. since is the state in which it was when they were equal, or "".
func (js *Jobs) look(ctx context.Context, s session.Files, j *job, since string) (difference, error) {
	// As root, since the default user may not read what an exec made. One more than the bound tells a full job from
	// one that has more.
	w, err := filework.Walk(ctx, s, proto.JobDir(j.rec.ID), MaxFiles+1, since)
	if w.Delta {
		if d, fits := j.fit(w); fits {
			return d, nil
		}
		w, err = filework.Walk(ctx, s, proto.JobDir(j.rec.ID), MaxFiles+1, "")
	}
	// The code or the API removed it, or put another file there. No directory means no files and is no failure.
	if j.absent = noDirectory(err, proto.JobDir(j.rec.ID)); j.absent {
		w.Files, err = nil, nil
	}
	if err != nil {
		return difference{}, err
	}
	w.Files = js.migrate(ctx, s, j, w.Files)
	return j.compare(w), nil
}

// fit takes what has changed since the record was written as it is, which costs nothing for the other files. It returns
// false if only a list of all files tells what a manifest holds now.
func (j *job) fit(w filework.Walked) (d difference, ok bool) {
	d.truncated, d.state = j.rec.Truncated, w.State
	came, room := 0, MaxPathBytes-j.pathBytes
	for _, fi := range w.Files {
		rel := j.rel(fi.Path)
		_, known := j.files[rel]
		if fi.Type == proto.TypeOther || rel == "" || len(fi.Path) > maxPath {
			return d, false
		}
		if rel == proto.OutputsName+"/"+ignoreFile {
			continue
		}
		if !known {
			came, room = came+1, room-len(rel)
		}
		d.changed = append(d.changed, fi)
	}
	for _, p := range w.Gone {
		if _, known := j.files[j.rel(p)]; known {
			d.gone = append(d.gone, j.rel(p))
		}
	}
	full := j.rec.Truncated && came+len(w.Gone) > 0
	return d, !full && len(j.files)+came <= MaxFiles && room >= 0
}

// noDirectory reports whether err says that dir does not exist or is no directory. A missing container has the same
// code and says nothing about its files, since the workspace may be kept.
func noDirectory(err error, dir string) bool {
	if err == nil {
		return false
	}
	e := proto.AsError(err)
	return (e.Code == proto.NotFound || e.Code == proto.InvalidArgument) && e.Item == dir
}

// compare returns how a list of all files differs from the record.
func (j *job) compare(w filework.Walked) (d difference) {
	d.truncated, d.state, j.special = w.Truncated, w.State, false
	seen := make(map[string]bool, len(w.Files))
	room := MaxPathBytes
	for _, fi := range w.Files {
		rel := j.rel(fi.Path)
		// Directories are not listed: they come and go with their files, and each file changes their change time.
		if rel == "" || rel == proto.OutputsName+"/"+ignoreFile || fi.Type == proto.TypeDirectory {
			continue
		}
		// FIFOs, sockets and devices are not listed either, but told where they were to be stored.
		if fi.Type == proto.TypeOther {
			j.special = j.special || strings.HasPrefix(rel, proto.OutputsName+"/")
			continue
		}
		if len(seen) >= MaxFiles || len(fi.Path) > maxPath || len(rel) > room {
			d.truncated = true
			continue
		}
		seen[rel], room = true, room-len(rel)
		// A write, chmod or rename moves the change time, so an equal one means unchanged. The size is compared too,
		// since the clock ticks only every few milliseconds.
		if was, ok := j.files[rel]; !ok || !was.Changed.Equal(fi.ChangedAt.Time) || was.SizeBytes != fi.SizeBytes {
			d.changed = append(d.changed, fi)
		}
	}
	for p := range j.files {
		if !seen[p] {
			d.gone = append(d.gone, p)
		}
	}
	return d
}

// rel returns a path relative to the job's directory, or "" for a path elsewhere.
func (j *job) rel(p string) string {
	rel, ok := strings.CutPrefix(p, proto.JobDir(j.rec.ID)+"/")
	if !ok {
		return ""
	}
	return rel
}

// recordChanged records changed files with their hash and the exec that changed them.
func (js *Jobs) recordChanged(ctx context.Context, s session.Files, j *job, by cause, changed []proto.FileInfo) error {
	sums, err := hash(ctx, s, changed)
	if err != nil {
		return err
	}
	for i, fi := range changed {
		rel := j.rel(fi.Path)
		was, known := j.files[rel]
		// A change of the API has its own origin and no exec, even if one ran meanwhile.
		origin, who := by.origin, ""
		if origin == "" || by.path != "" && rel != by.path && !strings.HasPrefix(rel, by.path+"/") {
			origin, who = originProduced, j.execAt(by, fi.ChangedAt.Time)
		}
		next := entry{Changed: fi.ChangedAt.Time, Artifact: proto.Artifact{
			Path: rel, Type: fi.Type, SizeBytes: fi.SizeBytes, SHA256: sums[i], Mode: fi.Mode, MediaType: mediaType(
				rel),
			Origin: origin, CreatedBy: who, CreatedAt: proto.At(js.cfg.Now()), ModifiedAt: fi.ModifiedAt,
		}}
		if known {
			// The first author of a file stays in the record.
			next.CreatedBy, next.CreatedAt, next.ChangedBy, next.Origin = was.CreatedBy, was.CreatedAt, who, was.Origin
			// The content is the same, so the author and the stored copy stay. Links have no content.
			if was.SHA256 == next.SHA256 && next.SHA256 != "" {
				next.ChangedBy, next.FileID = was.ChangedBy, was.FileID
			}
		}
		j.set(rel, next)
	}
	return nil
}

// hash returns the SHA-256 of the regular files in list, and "" for the others.
func hash(ctx context.Context, s session.Files, list []proto.FileInfo) ([]string, error) {
	sums := make([]string, len(list))
	var at []int
	for i, fi := range list {
		// A name that is not UTF-8 has a RawPath, and JSON cannot carry its path.
		if fi.Type == proto.TypeFile && fi.SizeBytes <= maxHashed && fi.RawPath == nil {
			at = append(at, i)
		}
	}
	for batch := range slices.Chunk(at, hashBatch) {
		paths := make([]string, len(batch))
		for k, i := range batch {
			paths[k] = list[i].Path
		}
		got, err := filework.Hash(ctx, s, proto.UserRoot, paths)
		if err != nil {
			return nil, err
		}
		for k, i := range batch {
			// A file that was removed meanwhile has no sum.
			sums[i] = got[paths[k]]
		}
	}
	return sums, nil
}

// execAt returns the exec during which a file changed: the one that just ended if it fits, else the latest that fits,
// else "" (a running command changed it).
func (j *job) execAt(by cause, at time.Time) string {
	// Execs may overlap. The one that just ended comes first, since its client waits for the list of its files.
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

// within allows timestampSlack at both ends: the stamp of a file written at the end of an exec may be just outside.
func within(at, start, end time.Time) bool {
	return !at.Before(start.Add(-timestampSlack)) && (end.IsZero() || !at.After(end.Add(timestampSlack)))
}

// mediaType returns the type for a name, since opening thousands of files would take too long.
func mediaType(name string) string {
	switch ext := strings.ToLower(path.Ext(name)); ext {
	// Fixed types for common files: the mime tables of machines differ, and a manifest should not.
	case ".md":
		return "text/markdown"
	case ".py", ".sh", ".log", ".txt":
		return "text/plain"
	case ".parquet":
		return "application/vnd.apache.parquet"
	default:
		// Without parameters: a charset would be a guess.
		if t, _, err := mime.ParseMediaType(mime.TypeByExtension(ext)); err == nil {
			return t
		}
	}
	return "application/octet-stream"
}
