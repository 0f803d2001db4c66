package artifacts

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/session/secrets"
	"berth/state/ledger"
)

// maxRecent bounds how many execs are remembered for attribution.
// More than that rarely overlap, and a file that changed before them was seen by the refresh after
// its own exec.
const maxRecent = 64

// maxLoggedCommand bounds a command in the manifest's log, in bytes.
// A script given as one command may have 1 MiB, and a manifest logs hundreds of them.
const maxLoggedCommand = 4 << 10

// maxLoggedPaths bounds the paths that a line of the manifest's log names, together, in bytes: like a command, they
// are as long as the code wants. The manifest's files say themselves who made them.
const maxLoggedPaths = 4 << 10

// End books an exec that ended: its outputs become stored files, its changes lines of the manifest.
// What fails becomes a note; the exec's own result stands.
func (js *Jobs) End(ctx context.Context, s session.Files, e proto.Exec, stderr string,
	seen session.DirectoryState) session.Produced {
	var made session.Produced
	j, done, err := js.lockJob(ctx, s.WorkspaceID(), e.JobID)
	if err != nil {
		return js.failed(made, e, err)
	}
	defer done()
	first := !j.known()
	j.noteUse(s, js.cfg.Now())
	j.addSpan(span{exec: e.ID, start: e.StartedAt.Time, end: e.EndedAt.Time})

	// After remember, so that the exec's own span is there for attribution. Where the guest has seen just what the
	// books say already, looking again would find nothing. But nothing is written after a look of before:
	// manifest.json may be somebody else's by now.
	if seen.Fingerprint == "" || seen.Fingerprint != j.fingerprint || !j.listed {
		made.Paths, err = js.refresh(ctx, s, j, cause{exec: e})
	}
	known := nameStored
	if err != nil {
		made, known = js.failed(made, e, err), storeAgain
	}
	// Even if the refresh failed: each of the two is reported by notes of its own.
	js.publishOutputs(ctx, s, j, e, known, &made)
	js.logExec(j, e, stderr, made.Paths)
	if first {
		js.save(j)
	}
	// An exec that changed no file costs no write into the container: its line appears in
	// manifest.json with the next change, and in the API at once.
	if first || !j.listed {
		if err := js.writeManifest(ctx, s, e.User, j); err != nil {
			made = js.failed(made, e, err)
		}
	}
	return made
}

// failed tells the caller that the books are behind, and the log why.
func (js *Jobs) failed(made session.Produced, e proto.Exec, err error) session.Produced {
	js.cfg.Log.Warn("recording what an exec made", "exec", e.ID, "error", err)
	made.Notes = append(made.Notes, "the job's manifest could not be brought up to date: "+proto.AsError(err).Message)
	return made
}

// addSpan keeps the newest spans. They are not in the ledger: a change that is first seen after a
// restart, and was made before it, is credited to nobody.
func (j *job) addSpan(sp span) {
	j.recent = append(j.recent, sp)
	if n := len(j.recent) - maxRecent; n > 0 {
		j.recent = slices.Delete(j.recent, 0, n)
	}
}

// logExec adds the exec to the job's log of commands.
func (js *Jobs) logExec(j *job, e proto.Exec, stderr string, produced []string) {
	// A secret on a command line or in an error message must not live on in a manifest, so both
	// are redacted.
	command := e.Command
	if command == "" {
		command = strings.Join(e.Argv, " ")
	}
	line := proto.JobExec{
		ID: e.ID, Command: secrets.RedactCut(command, maxLoggedCommand), StartedAt: e.StartedAt, EndedAt: e.EndedAt,
		Reason: e.End.Reason, ReturnCode: e.End.ReturnCode, Stderr: secrets.Redact(stderr), Produced: session.SomeOf(
			produced, maxLoggedPaths),
	}
	j.newest = append(j.newest, line)
	j.newest = j.newest[max(0, len(j.newest)-maxNewest):]
	j.logged++
	// Not after each one: pruning walks the whole log of the job. Up to 100 lines too many wait
	// for it, and manifest shows only the newest. The first finds what was left when the books were put away.
	prune := j.logged == 1 || j.logged%pruneEvery == 0
	js.queueWrite(j, func(tx *ledger.Tx) error {
		err := tx.Put(bucketExecs, j.key+"/"+e.ID, line)
		if err == nil && prune {
			err = keepNewest(tx, bucketExecs, j.key+"/", MaxExecs)
		}
		return err
	})
}

// maxNewest is how many commands a job's manifest knows before they are on disk.
// It need only cover what one batch of the ledger takes.
const maxNewest = 16

// pruneEvery is after how many commands the log of a job is cut to what a manifest shows.
const pruneEvery = 100

// keepNewest deletes all but the last n keys with this prefix.
func keepNewest(tx *ledger.Tx, bucket, prefix string, n int) error {
	var old []string
	// Keys end with exec IDs, which sort by time, so backwards is newest first. Deleting waits for
	// the end of the scan: a cursor must not lose its place.
	err := tx.ScanBack(bucket, prefix, "", func(k string, _ []byte) (bool, error) {
		if n--; n < 0 {
			old = append(old, k)
		}
		return true, nil
	})
	for _, k := range old {
		err = errors.Join(err, tx.Delete(bucket, k))
	}
	return err
}

// What becomes of outputs that the books know as stored files already. An interpreter's were stored while it ran;
// those of an exec that is booked a second time, since the daemon died at the first, by the daemon before.
type stored int

const (
	nameStored  stored = iota // they are named again
	leaveStored               // they are left out, since they were told of
	storeAgain                // they are stored again: the books may be behind, and name what the files were
)

// publishOutputs turns the top-level regular files of $OUTPUT_DIR into stored files.
func (js *Jobs) publishOutputs(ctx context.Context, s session.Files, j *job, e proto.Exec, known stored,
	made *session.Produced) {
	// Relative to the job's directory, as the paths in the books are.
	dir, _ := strings.CutPrefix(proto.OutputDir(e.JobID, e.ID), proto.JobDir(e.JobID)+"/")
	outputs, err := js.outputs(ctx, s, j, dir)
	if err != nil {
		made.Notes = append(made.Notes, "$OUTPUT_DIR could not be read: "+proto.AsError(err).Message)
	}
	if known == leaveStored {
		outputs = slices.DeleteFunc(outputs, func(p string) bool { return j.rec.Files[p].FileID != "" })
	}
	// A loop that writes a file for each row must not fill the owner's storage; the note says what
	// became of the rest.
	if len(outputs) > MaxOutputs {
		made.Notes = append(made.Notes, fmt.Sprintf("$OUTPUT_DIR holds %d files; the first %d became stored files, "+
			"the others are in the job's directory", len(outputs), MaxOutputs))
		outputs = outputs[:MaxOutputs]
	}
	for _, p := range outputs {
		if id := j.rec.Files[p].FileID; id != "" && known == nameStored {
			made.FileIDs = append(made.FileIDs, id)
			continue
		}
		// As the exec's own user: what that one could not read is not handed out through us.
		f, err := js.publish(ctx, s, e.User, j, p)
		if err != nil {
			made.Notes = append(made.Notes, fmt.Sprintf("%s was not stored: %s", p, proto.AsError(err).Message))
			continue
		}
		made.FileIDs = append(made.FileIDs, f.ID)
	}
}

// outputs are the regular files at the top of dir, sorted. Where the job holds more than its books, they
// are looked up.
func (js *Jobs) outputs(ctx context.Context, s session.Files, j *job, dir string) (paths []string, err error) {
	// The books stop at MaxFiles in the order of the walk, which need not have come to the
	// outputs.
	if j.rec.Truncated {
		at := proto.JobDir(j.rec.ID) + "/" + dir
		list, _, err := s.List(ctx, proto.UserRoot, at)
		for _, fi := range list {
			if fi.Type == proto.TypeFile {
				paths = append(paths, j.rel(fi.Path))
			}
		}
		if noDirectory(err, at) {
			err = nil // removed by the code itself
		}
		return paths, err
	}
	for p, f := range j.rec.Files {
		if path.Dir(p) == dir && f.Type == proto.TypeFile {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// publish stores one file of the job and notes its ID. Links are not followed: the file, or a directory on the way, may
// have been swapped for one since it was seen.
func (js *Jobs) publish(ctx context.Context, s session.Files, as string, j *job, rel string) (proto.StoredFile,
	error) {
	r, fi, err := s.ReadFileNoLinks(ctx, as, proto.JobDir(j.rec.ID)+"/"+rel)
	if err != nil {
		return proto.StoredFile{}, err
	}
	defer r.Close()
	f, err := js.cfg.Files.Put(ctx, files.Upload{
		// The scope ties the stored file to this container, by which lists can be asked for it.
		Owner: s.Owner(), Filename: files.NameOf(rel), Downloadable: true, Scope: s.ID(), SizeBytes: fi.SizeBytes,
	}, r)
	if err != nil {
		return f, err
	}
	if en, ok := j.rec.Files[rel]; ok {
		// It may have changed since it was hashed; the line tells of what was stored.
		en.FileID, en.MediaType, en.SHA256, en.SizeBytes = f.ID, f.MIMEType, f.SHA256, f.SizeBytes
		j.rec.Files[rel] = en
		j.listed = false
		js.save(j)
	}
	return f, nil
}

// Publish stores a file of a job, by its path below the job's directory, and returns it with its ID.
func (js *Jobs) Publish(ctx context.Context, s *session.Session, id, rel string) (proto.StoredFile, error) {
	// Cleaned as an absolute path: any number of ".." ends at the job's directory, and not above
	// it.
	clean := path.Clean("/" + rel)[1:]
	if !proto.ValidJobID(id) || clean == "" {
		return proto.StoredFile{}, proto.Errorf(proto.InvalidArgument, "", "path", "path %.200q does not name a "+
			"file of job %.80q", rel, id)
	}
	j, done, err := js.lockJob(ctx, s.WorkspaceID(), id)
	if err != nil {
		return proto.StoredFile{}, err
	}
	defer done()
	if !j.known() {
		return proto.StoredFile{}, unknownJob(s, id)
	}
	if _, err := js.refresh(ctx, s.Files, j, cause{}); err != nil {
		return proto.StoredFile{}, err
	}
	// As root: the caller owns the container, and may ask for files that only a command of root's
	// could read. Links are not followed there either.
	return js.publish(ctx, s.Files, proto.UserRoot, j, clean)
}

// Changed notes that the API wrote, moved or removed something. Only what lies in a job's directory
// matters here.
func (js *Jobs) Changed(ctx context.Context, s session.Files, p, origin string) {
	id, rel := split(p)
	if !proto.ValidJobID(id) {
		return
	}
	j, done, err := js.lockJob(ctx, s.WorkspaceID(), id)
	if err != nil {
		return
	}
	defer done()
	first := !j.known()
	j.noteUse(s, js.cfg.Now())
	changed, err := js.refresh(ctx, s, j, cause{origin: origin, path: rel})
	if err == nil && (len(changed) > 0 || !j.listed) {
		err = js.writeManifest(ctx, s, proto.UserDefault, j)
	}
	// Any directory of the workspace has the shape of a job's. Only one that is there becomes a
	// job.
	if first && (err != nil || j.absent) {
		j.rec.Created = time.Time{} // it is no job's directory
	} else if first {
		js.save(j) // also if there is no file in it yet
	}
	if err != nil {
		js.cfg.Log.Warn("recording a changed file", "job", j.key, "error", err)
	}
}

// split is the job that a path inside a container belongs to, and the path below its directory.
func split(p string) (job, rel string) {
	clean := path.Clean(p)
	// Relative paths of the API are relative to the workspace.
	if !path.IsAbs(clean) {
		clean = path.Join(proto.WorkspaceDir, clean)
	}
	rest, ok := strings.CutPrefix(clean, proto.WorkspaceDir+"/")
	if !ok {
		return "", ""
	}
	job, rel, _ = strings.Cut(rest, "/")
	return job, rel
}

// Made stores the top-level files of a running exec's $OUTPUT_DIR that were changed since they were stored: an
// interpreter that goes on has the same directory all the time, and what one piece of its code made is wanted before
// its end. since is when that piece began.
func (js *Jobs) Made(ctx context.Context, s *session.Session, e proto.Exec, since time.Time) session.Produced {
	var made session.Produced
	j, done, err := js.lockJob(ctx, s.WorkspaceID(), e.JobID)
	if err != nil {
		return js.failed(made, e, err)
	}
	defer done()
	now := proto.At(js.cfg.Now())
	e.StartedAt, e.EndedAt = proto.At(since), &now
	first := !j.known()
	j.noteUse(s.Files, now.Time)
	if first {
		js.save(j) // End will not find it to be the first
	}
	if made.Paths, err = js.refresh(ctx, s.Files, j, cause{exec: e}); err != nil {
		return js.failed(made, e, err)
	}
	js.publishOutputs(ctx, s.Files, j, e, leaveStored, &made)
	return made
}
