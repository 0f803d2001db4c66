package artifacts

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
)

// Bounds of one job's books.
const (
	MaxFiles = 5000 // a manifest lists; beyond it says that it is truncated
	// of all paths that a manifest lists, which are the code's to choose: 200 for each of MaxFiles
	MaxPathBytes = 1 << 20
	maxPath      = 4095    // bytes of one path; the kernel takes no longer one, so no program could open it
	MaxExecs     = 500     // a manifest logs, the newest
	MaxOutputs   = 100     // files of one exec are published
	maxHashed    = 1 << 30 // bytes of one file that is hashed; a larger one has no sha256
	hashBatch    = 200     // paths in one request to the guest
)

// Buckets of the ledger.
const (
	bucketJobs   = "jobs"
	bucketExecs  = "job_execs"
	bucketInputs = "inputs"
)

// FileStore is where uploads come from and outputs go to; files.Store is one.
type FileStore interface {
	// Open opens an owner's file; the caller closes it.
	Open(ctx context.Context, owner, id string) (io.ReadSeekCloser, proto.StoredFile, error)
	// Put stores what r gives.
	Put(ctx context.Context, up files.Upload, r io.Reader) (proto.StoredFile, error)
}

// Config is what New needs. Files and Ledger must be set.
type Config struct {
	Files  FileStore
	Ledger *ledger.DB
	Log    *slog.Logger     // nil: slog.Default
	Now    func() time.Time // nil: time.Now
}

// Jobs is the books of all jobs. It is the session.Jobs that sessions are opened with.
type Jobs struct {
	cfg Config

	mu   sync.Mutex
	open map[string]*job // by key; those in use, and idle ones as long as there is room
	idle int             // bytes of the latter
	uses uint64          // how often one became idle
}

// A job is one job's books in memory. Whoever works on them holds turn, which may be waited for.
// The turn is a channel and not a mutex, so that a request whose client has gone stops waiting:
// the holder may be walking a large directory. Fields other than dropped and the last three are the holder's alone.
type job struct {
	turn         chan struct{}
	key          string
	rec          *record // nil until read
	recent       []span  // execs since the books were opened, for attribution
	listed       bool    // manifest.json in the container is up to date, but for the exec log
	absent       bool    // the directory was not there at the last look
	ownsManifest bool    // manifest.json was not there then, or was ours
	manifestKey  statKey // of the manifest.json that was ours
	// of what the last look found, with the manifest that was written since; "" if that was not all, or was not to be
	// had
	fingerprint string
	listing     []proto.FileInfo // what it found; dropped with the turn
	logged      int              // execs logged since the books were opened
	newest      []proto.JobExec  // the last of them, which the ledger may not have written yet

	dropped atomic.Bool // its workspace is gone; nothing is written any more

	// Under the mutex of Jobs.
	users  int    // the holder and those who wait
	used   uint64 // Jobs.uses when it became idle
	weight int    // in bytes while it is idle, else 0
}

// A record is what the ledger knows of a job's files.
type record struct {
	ID        string           `json:"id"`
	Workspace string           `json:"workspace"`
	Container string           `json:"container"`
	Created   time.Time        `json:"created"`
	Updated   time.Time        `json:"updated"`
	Files     map[string]entry `json:"files"` // by path below the job's directory
	Truncated bool             `json:"truncated"`
}

// An entry is one file, and the inode change time that tells whether it is still the same.
// Modification times can be set by anyone with touch; the change time is the kernel's own.
type entry struct {
	proto.Artifact
	Changed time.Time `json:"changed"`
}

// A span is when an exec ran.
type span struct {
	exec       string
	start, end time.Time // end zero: still running
}

// New makes the books over a ledger.
func New(cfg Config) *Jobs {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Jobs{cfg: cfg, open: map[string]*job{}}
}

// jobKey is the key of a job everywhere: in memory, and in the ledger, where all jobs of a
// workspace thus share a prefix. Neither part may hold a slash.
func jobKey(workspace, id string) string { return workspace + "/" + id }

// lockJob opens a job's books and waits for its turn at them.
// The caller gives the turn back with the function returned, on every path. Waiting ends with ctx.
func (js *Jobs) lockJob(ctx context.Context, workspace, id string) (*job, func(), error) {
	key := jobKey(workspace, id)
	js.mu.Lock()
	j, ok := js.open[key]
	if !ok {
		j = &job{turn: make(chan struct{}, 1), key: key}
		js.open[key] = j
	}
	js.idle, j.weight = js.idle-j.weight, 0
	j.users++
	js.mu.Unlock()
	select {
	// Whoever waited while the workspace was dropped gets a turn at books that nobody else sees;
	// dropped keeps them from being written.
	case j.turn <- struct{}{}:
	case <-ctx.Done():
		js.releaseJob(j)
		return nil, nil, ctx.Err()
	}
	done := func() {
		j.listing = nil
		<-j.turn
		js.releaseJob(j)
	}
	if err := js.read(j, workspace, id); err != nil {
		done()
		return nil, nil, err
	}
	return j, done, nil
}

// read fetches the record if this is the first use.
func (js *Jobs) read(j *job, workspace, id string) error {
	if j.rec != nil {
		return nil
	}
	rec := &record{}
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucketJobs, j.key, rec)
		return err
	})
	if err != nil {
		return err
	}
	// Not in the ledger. It is not written either until there is something to tell: asking for a
	// job's manifest must not make the job.
	if rec.ID == "" {
		rec = &record{ID: id, Workspace: workspace, Files: map[string]entry{}}
	}
	j.rec = rec
	return nil
}

// known reports whether the job ever had an exec or a file.
func (j *job) known() bool { return j.rec != nil && !j.rec.Created.IsZero() }

// noteUse notes that the job is used by this session.
func (j *job) noteUse(s session.Files, now time.Time) {
	if !j.known() {
		j.rec.Created = now
	}
	j.rec.Updated, j.rec.Container = now, s.ID()
}

// Drop forgets all jobs of a workspace that is being removed.
func (js *Jobs) Drop(_ context.Context, workspace string) error {
	prefix := workspace + "/"
	// In this order: what is queued after close sees that it was dropped, what was queued before
	// is deleted by this update.
	js.closeWorkspace(prefix)
	return js.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		return errors.Join(
			tx.DeletePrefix(bucketJobs, prefix), tx.DeletePrefix(bucketExecs, prefix),
			tx.Delete(bucketInputs, workspace))
	})
}

// closeWorkspace puts away the books of a workspace, so that whoever still has one writes nothing more.
func (js *Jobs) closeWorkspace(prefix string) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for key, j := range js.open {
		if strings.HasPrefix(key, prefix) {
			j.dropped.Store(true)
			js.dropFromMemory(j)
		}
	}
}

// queueWrite queues a write for a job's books. The order of the ledger makes it come before Drop's or see that
// the job was dropped.
func (js *Jobs) queueWrite(j *job, fn func(*ledger.Tx) error) {
	js.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error {
		if j.dropped.Load() {
			return nil
		}
		return fn(tx)
	})
}

// flush waits until the ledger has what was queued so far, and so all of every exec whose end is known: an empty
// update waits for its place in the queue.
func (js *Jobs) flush() error {
	return js.cfg.Ledger.UpdateAsync(func(*ledger.Tx) error { return nil })
}

// List describes the jobs of a session's workspace, newest first.
func (js *Jobs) List(s *session.Session) ([]proto.JobSummary, error) {
	list := []proto.JobSummary{}
	if err := js.flush(); err != nil {
		return nil, err
	}
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucketJobs, s.WorkspaceID()+"/", func(_ string, r record) {
			list = append(list, r.summary())
		})
	})
	slices.SortFunc(list, func(a, b proto.JobSummary) int { return b.UpdatedAt.Compare(a.UpdatedAt.Time) })
	return list, err
}

// summary adds up sizes without overflow: the sum sticks to the largest number there is.
func (r record) summary() proto.JobSummary {
	sum := proto.JobSummary{JobID: r.ID, CreatedAt: proto.At(r.Created), UpdatedAt: proto.At(r.Updated),
		Files: len(r.Files)}
	for _, f := range r.Files {
		sum.Bytes += min(f.SizeBytes, math.MaxInt64-sum.Bytes) // files of holes can be of any size
	}
	return sum
}

// Manifest looks at the job's directory now and returns its manifest, which is written into the
// container too. A job that never was is NotFound.
func (js *Jobs) Manifest(ctx context.Context, s *session.Session, id string) (proto.Manifest, error) {
	if !proto.ValidJobID(id) {
		return proto.Manifest{}, unknownJob(s, id)
	}
	j, done, err := js.lockJob(ctx, s.WorkspaceID(), id)
	if err != nil {
		return proto.Manifest{}, err
	}
	defer done()
	if !j.known() {
		return proto.Manifest{}, unknownJob(s, id)
	}
	// A command that runs in the background changes files without an exec that ends, so what was
	// known after the last exec may be old.
	if _, err := js.refresh(ctx, s.Files, j, cause{}); err != nil {
		return proto.Manifest{}, err
	}
	m, err := js.manifest(j)
	if err != nil {
		return m, err
	}
	// The caller has the manifest in the answer. That the copy in the container could not be
	// written, on a full disk for one, is no reason to keep it back.
	if err := js.writeManifest(ctx, s.Files, proto.UserDefault, j); err != nil {
		js.cfg.Log.Warn("writing a manifest", "job", j.key, "error", err)
	}
	return m, nil
}

// unknownJob repeats the ID with a bound: it is the client's word, and may be anything.
func unknownJob(s *session.Session, id string) error {
	return proto.Errorf(proto.NotFound, "", id, "job %.80q does not exist in container %s", id, s.ID())
}
