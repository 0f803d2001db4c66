package artifacts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// Records as the ledger has them. A change here has to read what earlier versions wrote.
const (
	// what versions before 28 November 2026 wrote: all files in the job's record
	earlierRecord = `{"id":"j","workspace":"w","container":"c","created":"2026-11-20T08:00:00Z",` +
		`"updated":"2026-11-20T09:00:00Z","files":{"a.txt":` + storedFile + `,".outputs/e1/l":` + storedLink +
		`},"truncated":true}`
	storedRecord = `{"id":"j","workspace":"w","container":"c","created":"2026-11-20T08:00:00Z",` +
		`"updated":"2026-11-20T09:00:00Z","count":2,"bytes":12,"truncated":true}`
	storedFile = `{"path":"a.txt","type":"file","size_bytes":9,"sha256":"ab","mode":"0644","media_type":"text/plain",` +
		`"origin":"produced","created_by":"exec_1","changed_by":"exec_2","created_at":"2026-11-20T08:00:00.000000Z",` +
		`"modified_at":"2026-11-20T08:30:00.000000Z","changed":"2026-11-20T08:30:00.000001Z"}`
	storedLink = `{"path":".outputs/e1/l","type":"symlink","size_bytes":3,"sha256":"","mode":"0777",` +
		`"media_type":"application/octet-stream","origin":"produced","created_at":"2026-11-20T08:00:00.000000Z",` +
		`"modified_at":"2026-11-20T08:30:00.000000Z","file_id":"file_1","changed":"2026-11-20T08:30:00.000001Z",` +
		`"followed":"2026-11-20T08:30:00.000002Z"}`
)

// records returns all records of a workspace's jobs in the ledger, by bucket and key.
func records(t *testing.T, js *Jobs, workspace string) map[string]string {
	t.Helper()
	if err := js.flush(); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		for _, bucket := range []string{bucketJobs, bucketFiles, bucketExecs} {
			if err := tx.Scan(bucket, workspace+"/", func(key string, data []byte) (bool, error) {
				all[bucket+"/"+key] = string(data)
				return true, nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// put stores a record as it is.
func put(t *testing.T, js *Jobs, bucket, key, text string) {
	t.Helper()
	if err := js.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		return tx.Put(bucket, key, json.RawMessage(text))
	}); err != nil {
		t.Fatal(err)
	}
}

// onJob runs fn with a job that it has locked.
func onJob(t *testing.T, js *Jobs, id string, fn func(*job)) {
	t.Helper()
	j, done, err := js.lockJob(context.Background(), "w", id)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	fn(j)
}

// TestRecordForms checks that a job is the same from records of today and of earlier versions, that a write of either
// leaves the form of today, and that a copy of either is the same job.
func TestRecordForms(t *testing.T) {
	today := map[string]string{"jobs/w/j": storedRecord, "job_files/w/j/a.txt": storedFile,
		"job_files/w/j/.outputs/e1/l": storedLink}
	for name, before := range map[string]map[string]string{
		"today": today, "earlier": {"jobs/w/j": earlierRecord},
	} {
		t.Run(name, func(t *testing.T) {
			js := openJobs(t)
			for key, text := range before {
				bucket, key, _ := bytes.Cut([]byte(key), []byte("/"))
				put(t, js, string(bucket), string(key), text)
			}
			if err := js.Copy(context.Background(), "w", "copied"); err != nil {
				t.Fatal(err)
			}
			var rec record
			if err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
				_, err := tx.Get(bucketJobs, "w/j", &rec)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if sum := rec.summary(); sum.Files != 2 || sum.Bytes != 12 {
				t.Errorf("the summary is %+v", sum)
			}
			onJob(t, js, "j", func(j *job) {
				if a := j.files["a.txt"]; a.CreatedBy != "exec_1" || a.Changed.Nanosecond() != 1000 || len(j.files) != 2 {
					t.Errorf("the files are %+v", j.files)
				}
				js.save(j)
			})
			if got := records(t, js, "w"); !maps.Equal(got, today) {
				t.Errorf("written is %q", got)
			}
			copied, done, err := js.lockJob(context.Background(), "copied", "j")
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			if copied.rec.Workspace != "copied" || len(copied.files) != 2 || copied.files["a.txt"].SHA256 != "ab" {
				t.Errorf("the copy is %+v with %+v", copied.rec, copied.files)
			}
			if err := js.Drop(context.Background(), "w"); err != nil {
				t.Fatal(err)
			}
			if got := records(t, js, "w"); len(got) != 0 {
				t.Errorf("left after the removal: %q", got)
			}
		})
	}
}

// TestSaveWritesWhatChanged checks that one changed file is one record more to write, and that a failed write is made
// up for.
func TestSaveWritesWhatChanged(t *testing.T) {
	js := openJobs(t)
	onJob(t, js, "j", func(j *job) {
		j.rec.Created = time.Unix(0, 0)
		for i := range 3 {
			j.set(fmt.Sprint(i), entry{Artifact: proto.Artifact{Path: fmt.Sprint(i)}})
		}
		js.save(j)
	})
	if got := records(t, js, "w"); len(got) != 4 {
		t.Fatalf("written is %q", got)
	}
	for _, key := range []string{"w/j/0", "w/j/1", "w/j/2"} {
		put(t, js, bucketFiles, key, `{"path":"untouched"}`)
	}
	onJob(t, js, "j", func(j *job) {
		j.set("1", entry{Artifact: proto.Artifact{Path: "1", SizeBytes: 5}})
		j.remove("2")
		js.save(j)
	})
	got := records(t, js, "w")
	if got["job_files/w/j/0"] != `{"path":"untouched"}` || !bytes.Contains([]byte(got["job_files/w/j/1"]),
		[]byte(`"size_bytes":5`)) || got["job_files/w/j/2"] != "" {
		t.Errorf("written is %q", got)
	}
	onJob(t, js, "j", func(j *job) {
		js.queueWrite(j, func(*ledger.Tx) error { return fmt.Errorf("no space left") })
	})
	records(t, js, "w") // waits for it
	onJob(t, js, "j", func(j *job) { js.save(j) })
	if got := records(t, js, "w"); !bytes.Contains([]byte(got["job_files/w/j/0"]), []byte(`"path":"0"`)) {
		t.Errorf("written after a failure is %q", got)
	}
}

// TestIndexKeepsCount checks the sums and the order of an index while files come, change and go, a few or many at a
// time.
func TestIndexKeepsCount(t *testing.T) {
	x := newIndex(map[string]entry{})
	check := func() {
		t.Helper()
		again := newIndex(maps.Clone(x.files))
		if x.bytes != again.bytes || !maps.Equal(x.outputs, again.outputs) || !slices.Equal(x.paths(), again.paths()) {
			t.Fatalf("%d bytes, outputs %v, paths %q; they are %d, %v, %q", x.bytes, x.outputs, x.paths(), again.bytes,
				again.outputs, again.paths())
		}
	}
	name := func(i int) string {
		if i%3 == 0 {
			return fmt.Sprintf("%s/exec_%d/%d", proto.OutputsName, i%7, i)
		}
		return fmt.Sprint(i)
	}
	for _, n := range []int{3, 10 * fewMoved, 5} {
		for i := range n {
			x.set(name(i), entry{Artifact: proto.Artifact{SizeBytes: int64(i) << 50}})
		}
		check()
		x.set("new", entry{})
		x.remove("new")
		x.set("new", entry{})
		check()
		for i := range n - 2 {
			x.remove(name(i))
		}
		check()
	}
	if !x.hasOutput(proto.OutputsName+"/exec_3") || x.hasOutput(proto.OutputsName+"/exec_1") {
		t.Errorf("outputs are %v", x.outputs)
	}
}

// TestManifestText checks that the copy of a manifest, of which only new parts are encoded, is what encoding the
// API's manifest gives.
func TestManifestText(t *testing.T) {
	js := openJobs(t)
	at := proto.At(time.Unix(1_800_000_000, 0))
	check := func(j *job) {
		t.Helper()
		m, err := js.manifest(j)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := js.manifestText(j); err != nil || string(got) != string(want)+"\n" {
			t.Fatalf("the copy is %s, want %s, %v", got, want, err)
		}
	}
	put(t, js, bucketExecs, "w/j/exec_0", `{"id":"exec_0","command":"earlier"}`)
	onJob(t, js, "j", func(j *job) {
		j.rec.Created = at.Time
		check(j)
		for i, p := range []string{"b", "a<b>&", `"execs": []`, "ü"} {
			j.set(p, entry{Artifact: proto.Artifact{Path: p, SizeBytes: int64(i), CreatedAt: at}})
			js.logExec(j, proto.Exec{ID: fmt.Sprintf("exec_%d", i+1), Command: p, EndedAt: &at, End: &proto.End{}}, p,
				[]string{p})
			check(j)
		}
		j.set("b", entry{Artifact: proto.Artifact{Path: "b", FileID: "file_1"}})
		j.remove("ü")
		check(j)
		for i := range MaxExecs {
			js.logExec(j, proto.Exec{ID: fmt.Sprintf("exec_9%06d", i), EndedAt: &at, End: &proto.End{}}, "", nil)
		}
	})
	if err := js.flush(); err != nil {
		t.Fatal(err)
	}
	onJob(t, js, "j", check)
}
