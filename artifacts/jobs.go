package artifacts

import (
	"context"
	"io"
	"log/slog"
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

// Bounds of one job.
const (
	MaxFiles = 5000 // files in a manifest; a manifest of more says that it is truncated
	// bytes of all paths in a manifest, which the code chooses: 200 for each of MaxFiles
	MaxPathBytes = 1 << 20
	maxPath      = 4095    // bytes of one path; the kernel accepts no longer one
	MaxExecs     = 500     // newest execs in a manifest
	MaxOutputs   = 100     // files of one exec that are published
	maxHashed    = 1 << 30 // bytes of one file; a larger one has no sha256
	hashBatch    = 200     // paths in one request to the guest
)

// Buckets of the ledger.
const (
	bucketJobs   = "jobs"
	bucketFiles  = "job_files"
	bucketExecs  = "job_execs"
	bucketInputs = "inputs"
)

// A FileStore has the uploads and takes the outputs. files.Store is one.
type FileStore interface {
	// Open opens an owner's file; the caller closes it.
	Open(ctx context.Context, owner, id string) (io.ReadSeekCloser, proto.StoredFile, error)
	// Put stores the bytes of r.
	Put(ctx context.Context, up files.Upload, r io.Reader) (proto.StoredFile, error)
}

// Config is what New needs. Files and Ledger must be set.
type Config struct {
	Files  FileStore
	Ledger *ledger.DB
	Log    *slog.Logger     // nil: slog.Default
	Now    func() time.Time // nil: time.Now
}

// Jobs has the manifests of all jobs. It implements session.Jobs.
type Jobs struct {
	*inputs // implements Begin
	cfg     Config

	mu   sync.Mutex
	open map[string]*job // by key: those in use, and idle ones while there is room
	idle int             // bytes of the idle ones
	uses uint64          // how often a job became idle
}

// A job is one job in memory. A goroutine works on it while it holds turn, a lock that others can give up waiting
// for: the holder may be listing a large directory. Only the holder uses the fields, except for the last five.
type job struct {
	turn        chan struct{}
	key         string
	rec         *record              // nil until read
	*index                           // as rec
	recent      []span               // execs since the job was loaded, for attribution
	listed      bool                 // the manifest in the container is up to date, except for its exec log
	absent      bool                 // the directory was missing when it was last listed
	migrated    bool                 // it has no manifest of an earlier version
	ignored     map[string]bool      // directories that have their ignoreFile
	special     bool                 // there was a special file below OutputsName when it was last listed
	unlisted    map[string]entry     // stored outputs that the manifest has no room for
	told        map[string]time.Time // as in notes
	fingerprint string               // state of the directory at the last listing; "" if that failed or is unknown
	logged      int                  // execs logged since the job was loaded
	newest      []proto.JobExec      // the last of them, which the ledger may not have yet
	lines       [][]byte             // the log of commands as in the copy of the manifest; nil: not known

	dropped atomic.Bool // its workspace is gone, so nothing is written any more
	behind  atomic.Bool // the ledger lacks files that are not in unsaved, so the next save writes all

	// Guarded by the mutex of Jobs.
	users  int    // the holder and those who wait for the lock
	used   uint64 // Jobs.uses when it became idle
	weight int    // in bytes while it is idle, else 0
}

// A span is the time of an exec.
type span struct {
	exec       string
	start, end time.Time // end zero: it runs
}

// New makes Jobs over a ledger.
func New(cfg Config) *Jobs {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Jobs{cfg: cfg, open: map[string]*job{},
		inputs: &inputs{files: cfg.Files, ledger: cfg.Ledger, log: cfg.Log}}
}

// lockJob loads a job and locks it. The caller calls the returned function on every path. Waiting ends with ctx.
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
	// If the workspace was dropped meanwhile, the job is not in memory any more, and dropped prevents writes.
	case j.turn <- struct{}{}:
	case <-ctx.Done():
		js.releaseJob(j)
		return nil, nil, ctx.Err()
	}
	done := func() {
		<-j.turn
		js.releaseJob(j)
	}
	if err := js.read(j, workspace, id); err != nil {
		done()
		return nil, nil, err
	}
	return j, done, nil
}

// known reports whether the job ever had an exec or a file.
func (j *job) known() bool { return j.rec != nil && !j.rec.Created.IsZero() }

// noteUse notes that this session uses the job.
func (j *job) noteUse(s session.Files, now time.Time) {
	if !j.known() {
		j.rec.Created = now
	}
	j.rec.Updated, j.rec.Container = now, s.ID()
}

// Drop forgets all jobs of a workspace that is being removed.
func (js *Jobs) Drop(_ context.Context, workspace string) error {
	prefix := workspace + "/"
	// In this order: what is queued later sees that it was dropped, and the update deletes what was queued earlier.
	js.mu.Lock()
	for key, j := range js.open {
		if strings.HasPrefix(key, prefix) {
			j.dropped.Store(true)
			js.dropFromMemory(j)
		}
	}
	js.mu.Unlock()
	return js.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return dropRecords(tx, workspace) })
}

// Copy gives a workspace the jobs of another one, or of a snapshot, in place of its own. Their files are copies, too.
func (js *Jobs) Copy(ctx context.Context, from, to string) error {
	if err := js.Drop(ctx, to); err != nil {
		return err
	}
	return js.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return copyRecords(tx, from, to) })
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

// Manifest lists the job's directory now and returns its manifest, which it writes into the container too. An unknown
// job is NotFound.
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
	// A background command changes files without an exec that ends, so the manifest may be old.
	if _, err := js.refresh(ctx, s.Files, j, cause{}); err != nil {
		return proto.Manifest{}, err
	}
	m, err := js.manifest(j)
	if err != nil {
		return m, err
	}
	// The client gets the manifest in the answer, even if the copy in the container cannot be written, as on a full
	// disk.
	if err := js.writeManifest(ctx, s.Files, proto.UserDefault, j); err != nil {
		js.cfg.Log.Warn("writing a manifest", "job", j.key, "error", err)
	}
	return m, nil
}

// unknownJob quotes the ID with a bound, since the client may send anything.
func unknownJob(s *session.Session, id string) error {
	return proto.Errorf(proto.NotFound, "", id, "job %.80q does not exist in container %s", id, s.ID())
}
