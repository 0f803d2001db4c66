package artifacts

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"berth/proto"
	"berth/session"
	"berth/session/secrets"
	"berth/state/ledger"
)

// maxRecent bounds the execs that are remembered for attribution. More rarely overlap, and the listing after an older
// exec has seen its changes.
const maxRecent = 64

// maxLoggedCommand bounds a command in the manifest's log, in bytes. A command may have 1 MiB, and a manifest logs
// hundreds.
const maxLoggedCommand = 4 << 10

// maxLoggedPaths bounds the paths in one line of the manifest's log, in bytes, since the code chooses their length.
// Each file in the manifest names its exec anyway.
const maxLoggedPaths = 4 << 10

// End records an exec that ended: it publishes its outputs and adds its changes to the manifest. Failures become
// notes; the result of the exec stands.
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
	// Spans are not in the ledger: a change from before a restart that is found after it has no exec.
	j.recent = append(j.recent, span{exec: e.ID, start: e.StartedAt.Time, end: e.EndedAt.Time})
	j.recent = j.recent[max(0, len(j.recent)-maxRecent):]

	// After that, so that the exec's own span is there for attribution. If the guest saw exactly what the manifest
	// says, another listing would find nothing.
	if seen.Fingerprint == "" || seen.Fingerprint != j.fingerprint || !j.listed {
		made.Paths, err = js.refresh(ctx, s, j, cause{exec: e})
	}
	known := nameStored
	if err != nil {
		made, known = js.failed(made, e, err), storeAgain
	}
	// Even if the refresh failed: each has notes of its own.
	if !seen.NoOutputs {
		js.publishOutputs(ctx, s, j, e, known, &made)
	}
	js.logExec(j, e, stderr, made.Paths)
	if first {
		js.save(j)
	}
	// An exec that changed no file needs no write into the container. Its line is in the copy there after the next
	// change, and in the API at once.
	if first || !j.listed {
		if err := js.writeManifest(ctx, s, e.User, j); err != nil {
			made = js.failed(made, e, err)
		}
	}
	return made
}

// failed notes for the client that the manifest is behind, and logs why.
func (js *Jobs) failed(made session.Produced, e proto.Exec, err error) session.Produced {
	js.cfg.Log.Warn("recording what an exec made", "exec", e.ID, "error", err)
	made.Notes = append(made.Notes, "the job's manifest could not be brought up to date: "+proto.AsError(err).Message)
	return made
}

// logExec adds the exec to the job's log of commands.
func (js *Jobs) logExec(j *job, e proto.Exec, stderr string, produced []string) {
	// Secrets on a command line or in an error message must not stay in a manifest.
	command := e.Command
	if command == "" {
		command = strings.Join(e.Argv, " ")
	}
	line := proto.JobExec{
		ID: e.ID, Command: secrets.RedactCut(command, maxLoggedCommand), StartedAt: e.StartedAt, EndedAt: e.EndedAt,
		Reason: e.End.Reason, ReturnCode: e.End.ReturnCode, Stderr: secrets.Redact(stderr), Produced: secrets.SomeOf(
			produced, maxLoggedPaths),
	}
	j.newest = append(j.newest, line)
	j.newest = j.newest[max(0, len(j.newest)-maxNewest):]
	j.addLine(line)
	j.logged++
	// Not after each exec, since pruning walks the whole log of the job. Up to 100 extra lines wait for it; the
	// manifest shows only the newest. The first exec prunes what was left when the job left memory.
	prune := j.logged == 1 || j.logged%pruneEvery == 0
	js.queueWrite(j, func(tx *ledger.Tx) error {
		err := tx.Put(bucketExecs, j.key+"/"+e.ID, line)
		if err == nil && prune {
			err = keepNewest(tx, bucketExecs, j.key+"/", MaxExecs)
		}
		return err
	})
}

// maxNewest is how many commands a job knows before they are on disk. It has to cover one batch of the ledger.
const maxNewest = 16

// pruneEvery is after how many commands a job's log is pruned.
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

// Publish stores a file of a job, by its path below the job's directory, and returns it with its ID.
func (js *Jobs) Publish(ctx context.Context, s *session.Session, id, rel string) (proto.StoredFile, error) {
	// Cleaned as an absolute path, so that ".." cannot leave the job's directory.
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
	// As root: the client owns the container and may ask for files that only root can read. The ordinary user may have
	// made a link, and reads what it leads to.
	as := proto.UserRoot
	if j.files[clean].Type == proto.TypeSymlink {
		as = proto.UserDefault
	}
	return js.publish(ctx, s.Files, as, j, clean)
}

// Changed records that the API wrote, moved or removed a file. Files outside of job directories do not matter.
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
	// Any directory of the workspace may be a job's. Only one that exists becomes a job.
	if first && (err != nil || j.absent) {
		j.rec.Created = time.Time{} // not a job's directory
	} else if first {
		js.save(j) // even if it has no file yet
	}
	if err != nil {
		js.cfg.Log.Warn("recording a changed file", "job", j.key, "error", err)
	}
}

// split returns the job of a path in a container, and the path below the job's directory.
func split(p string) (job, rel string) {
	clean := path.Clean(p)
	// Relative paths of the API start at the workspace.
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

// Made stores the files of a running exec's $OUTPUT_DIR that changed since they were stored. An interpreter has the
// same directory all the time, and clients want the files of one cell before its end. since is the start of that cell.
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
		js.save(j) // so that End does not take it for the first exec
	}
	if made.Paths, err = js.refresh(ctx, s.Files, j, cause{exec: e}); err != nil {
		return js.failed(made, e, err)
	}
	js.publishOutputs(ctx, s.Files, j, e, leaveStored, &made)
	return made
}
