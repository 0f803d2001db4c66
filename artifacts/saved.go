package artifacts

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// A record is a job in the ledger. Its files have records of their own, so that a command writes only what it changed.
type record struct {
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"`
	Container string    `json:"container"`
	Created   time.Time `json:"created"`
	Updated   time.Time `json:"updated"`
	Count     int       `json:"count"` // of files
	Bytes     int64     `json:"bytes"` // as in index
	Truncated bool      `json:"truncated"`

	// Of a record that an earlier version wrote: the files, in place of Count and Bytes. The next write divides it.
	Files map[string]entry `json:"files,omitempty"`
}

// An entry is one file, with the inode change time that tells whether it has changed. Any program can set
// modification times; only the kernel sets change times.
type entry struct {
	proto.Artifact
	Changed  time.Time `json:"changed"`
	Followed time.Time `json:"followed,omitzero"` // of a link with a FileID: change time of the file that was stored
}

// jobKey returns the key of a job in memory and in the ledger, where the jobs of a workspace share a prefix. Neither
// part may hold a slash.
func jobKey(workspace, id string) string { return workspace + "/" + id }

// fileKey returns the key of a job's file in the ledger. path may hold slashes.
func fileKey(job, path string) string { return job + "/" + path }

// read loads the job on first use.
func (js *Jobs) read(j *job, workspace, id string) error {
	if j.rec != nil {
		return nil
	}
	rec, files := &record{}, map[string]entry{}
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		if has, err := tx.Get(bucketJobs, j.key, rec); err != nil || !has || rec.Files != nil {
			return err
		}
		return ledger.Each(tx, bucketFiles, fileKey(j.key, ""), func(_ string, e entry) { files[e.Path] = e })
	})
	if err != nil {
		return err
	}
	// The record is not in the ledger, and is written only once there is something to record: a request for a job's
	// manifest must not create the job.
	if rec.ID == "" {
		j.migrated = true
		rec = &record{ID: id, Workspace: workspace}
	}
	j.index = newIndex(files)
	if rec.Files != nil {
		j.index = newIndex(rec.Files)
		rec.Files = nil
		j.behind.Store(true)
	}
	j.rec = rec
	return nil
}

// save queues what has changed for the ledger, as one update. The next refresh finds what a crash loses.
func (js *Jobs) save(j *job) {
	if j.behind.Swap(false) {
		for p := range j.files {
			j.unsaved[p] = true
		}
	}
	j.rec.Count, j.rec.Bytes = len(j.files), j.bytes
	rec := *j.rec // now, since it may change before the write
	changed := make(map[string]*entry, len(j.unsaved))
	for p := range j.unsaved {
		changed[p] = nil
		if e, ok := j.files[p]; ok {
			changed[p] = &e
		}
	}
	clear(j.unsaved)
	js.queueWrite(j, func(tx *ledger.Tx) error {
		err := tx.Put(bucketJobs, j.key, rec)
		for p, e := range changed {
			if e == nil {
				err = errors.Join(err, tx.Delete(bucketFiles, fileKey(j.key, p)))
			} else {
				err = errors.Join(err, tx.Put(bucketFiles, fileKey(j.key, p), e))
			}
		}
		return err
	})
}

// queueWrite queues a write of a job. In the ledger's order it comes before Drop, or it sees that the job was
// dropped. If it fails, the next save writes everything.
func (js *Jobs) queueWrite(j *job, fn func(*ledger.Tx) error) {
	js.cfg.Ledger.UpdateLaterThen(func(tx *ledger.Tx) error {
		if j.dropped.Load() {
			return nil
		}
		return fn(tx)
	}, func(err error) {
		if err != nil {
			j.behind.Store(true)
		}
	})
}

// flush waits until the ledger has everything queued so far. An empty update waits for its place in the queue.
func (js *Jobs) flush() error {
	return js.cfg.Ledger.UpdateAsync(func(*ledger.Tx) error { return nil })
}

// summary describes a job from its record alone.
func (r record) summary() proto.JobSummary {
	if r.Files != nil {
		x := newIndex(r.Files)
		r.Count, r.Bytes = len(x.files), x.bytes
	}
	return proto.JobSummary{JobID: r.ID, CreatedAt: proto.At(r.Created), UpdatedAt: proto.At(r.Updated),
		Files: r.Count, Bytes: r.Bytes}
}

// dropRecords removes the records of all jobs of a workspace.
func dropRecords(tx *ledger.Tx, workspace string) error {
	err := tx.Delete(bucketInputs, workspace)
	for _, bucket := range []string{bucketJobs, bucketFiles, bucketExecs} {
		err = errors.Join(err, tx.DeletePrefix(bucket, workspace+"/"))
	}
	return err
}

// copyRecords copies the records of all jobs of a workspace.
func copyRecords(tx *ledger.Tx, from, to string) error {
	var given names
	has, err := tx.Get(bucketInputs, from, &given)
	if err == nil && has {
		err = tx.Put(bucketInputs, to, given)
	}
	return errors.Join(err,
		copyPrefix(tx, bucketJobs, from, to, func(r *record) { r.Workspace = to }),
		copyPrefix(tx, bucketFiles, from, to, func(*json.RawMessage) {}),
		copyPrefix(tx, bucketExecs, from, to, func(*json.RawMessage) {}))
}

// copyPrefix copies all records of a workspace in one bucket.
func copyPrefix[T any](tx *ledger.Tx, bucket, from, to string, change func(*T)) error {
	found := map[string]T{} // first, because a scan must not change what it walks
	err := ledger.Each(tx, bucket, from+"/", func(key string, v T) { found[key] = v })
	for key, v := range found {
		change(&v)
		err = errors.Join(err, tx.Put(bucket, to+strings.TrimPrefix(key, from), v))
	}
	return err
}
