package audit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/proto"
	"berth/state/durable"
	"berth/state/ledger"
)

// A Config is what Open needs. Dir and Ledger must be set.
type Config struct {
	Dir          string // directory of the segments; must exist
	Ledger       *ledger.DB
	SegmentBytes int64            // a segment that would grow larger is closed, and the next one begins; 0 is 16 MiB
	SyncEvery    time.Duration    // the longest time between writing and syncing an entry; 0 is 200 ms
	RetryEvery   time.Duration    // time between two attempts to write waiting entries; 0 is 500 ms
	QueueBytes   int64            // limit for waiting entries; 0 is 16 MiB
	Log          *slog.Logger     // nil: slog.Default
	Now          func() time.Time // nil: time.Now
}

// maxBatch bounds one write, in bytes: on a nearly full disk, small writes still succeed.
const maxBatch = 256 << 10

// A Log is the log of one daemon. It is safe for concurrent use.
type Log struct {
	cfg  Config
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex // guards what follows
	turn    *sync.Cond // on mu: writing or failed has changed
	chained head       // of the last entry in the chain
	written head       // of the last entry in the file
	queue   []entry    // entries between the two, except a batch being written
	queued  int64      // bytes of queue
	lost    int64      // entries dropped for lack of room since the last entry that reports them
	writing bool       // a goroutine writes to out, without mu
	failed  error      // error of the last write
	dirty   []entry    // in the file, but not known to be on disk
	grown   chan struct{}
	closed  bool

	out *output // owned by the goroutine that set writing; its lock is for syncs during writes
}

// A head is the end of a chain.
type head struct {
	seq  int64
	hash string
}

// An entry is a line with its place.
type entry struct {
	head
	prev string
	line []byte
}

// Open continues the log in cfg.Dir, or begins one. It writes an entry that reports how the last daemon ended, and
// whether anything is missing or torn.
func Open(cfg Config) (*Log, error) {
	cfg.SegmentBytes = cmp.Or(cfg.SegmentBytes, 16<<20)
	cfg.SyncEvery = cmp.Or(cfg.SyncEvery, 200*time.Millisecond)
	cfg.RetryEvery = cmp.Or(cfg.RetryEvery, 500*time.Millisecond)
	cfg.QueueBytes = cmp.Or(cfg.QueueBytes, 16<<20)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Log{cfg: cfg, stop: make(chan struct{}), grown: make(chan struct{})}
	l.turn = sync.NewCond(&l.mu)
	found, err := l.recover()
	if err == nil {
		err = l.unclose()
	}
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	if found.outcome != proto.AuditOK {
		cfg.Log.Error("the audit log is not as it was left", "found", found.text)
	}
	l.Append(proto.AuditEntry{Act: "log.open", Outcome: found.outcome, Actor: proto.ActorDaemon, Note: found.text})
	if err := errors.Join(l.sync(), l.anchor(false)); err != nil {
		return nil, errors.Join(fmt.Errorf("anchoring the audit log: %w", err), l.out.f.Close())
	}
	l.done.Go(l.keep)
	return l, nil
}

// Append adds e to the chain and returns once it is written. If it cannot be written, it waits in memory, and Ready
// reports that. Append sets Time, Seq, Prev and Hash.
func (l *Log) Append(e proto.AuditEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaitRoom()
	if l.lost > 0 && l.failed == nil {
		n := l.lost
		l.lost = 0
		l.chain(proto.AuditEntry{Act: "log.lost", Outcome: string(proto.QuotaExceeded), Actor: proto.ActorDaemon,
			Note: fmt.Sprintf("%d entries had no room in memory while the log could not be written; the daemon's "+
				"own log has them", n)})
	}
	l.chain(e)
	mine := l.chained.seq
	for l.written.seq < mine && l.failed == nil {
		if l.writing {
			l.turn.Wait()
			continue
		}
		l.writeQueue()
	}
}

// awaitRoom waits until there is room for an entry while the log can be written. Otherwise a flood of entries could
// hide an action. The caller holds mu.
func (l *Log) awaitRoom() {
	for l.failed == nil && !l.closed && l.queued > 0 && l.queued+maxLine > l.cfg.QueueBytes {
		if l.writing {
			l.turn.Wait()
			continue
		}
		l.writeQueue()
	}
}

// chain appends an entry to the chain. The caller holds mu.
func (l *Log) chain(e proto.AuditEntry) {
	e.Seq, e.Prev, e.Time = l.chained.seq+1, l.chained.hash, proto.At(l.cfg.Now())
	line, hash, err := encode(e)
	switch {
	case err != nil:
	case l.closed:
		err = errors.New("the log is closed")
	case l.queued+int64(len(line)) > l.cfg.QueueBytes:
		err = errors.New("the queue in memory is full")
	}
	if err != nil {
		l.lost++
		l.cfg.Log.Error("an entry could not be taken into the audit log", "entry", string(line), "error", err)
		return
	}
	l.chained = head{e.Seq, hash}
	l.queue = append(l.queue, entry{l.chained, e.Prev, line})
	l.queued += int64(len(line))
}

// writeQueue writes the first waiting entries. The caller holds mu, and writing is false. It releases mu meanwhile.
func (l *Log) writeQueue() {
	n, size := 0, 0
	for n < len(l.queue) && (n == 0 || size+len(l.queue[n].line) <= maxBatch) {
		size += len(l.queue[n].line)
		n++
	}
	batch := l.queue[:n:n]
	l.writing = true
	l.mu.Unlock()
	rotated, err := l.out.write(batch, size)
	l.mu.Lock()
	l.writing = false
	l.report(err)
	if rotated { // rotation synced everything before
		l.dirty = nil
	}
	if err == nil {
		l.queue, l.queued = l.queue[n:], l.queued-int64(size)
		l.written = batch[n-1].head
		l.dirty = append(l.dirty, batch...)
		close(l.grown)
		l.grown = make(chan struct{})
	}
	l.turn.Broadcast()
}

// report records the result of a write, and logs changes of it. The caller holds mu.
func (l *Log) report(err error) {
	switch {
	case err != nil && l.failed == nil:
		l.cfg.Log.Error(
			"the audit log cannot be written; requests that would have to be in it are refused until it can", "error",
			err)
	case err == nil && l.failed != nil:
		l.cfg.Log.Info("the audit log can be written again")
	}
	l.failed = err
}

// Ready fails with Unavailable while entries cannot be written. Callers must not start a change then.
func (l *Log) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		return nil
	}
	why := "it fails to write"
	var errno syscall.Errno
	if errors.As(l.failed, &errno) {
		why = errno.Error()
	}
	return proto.Errorf(proto.Unavailable, "", "audit log", "the audit log cannot be written (%s), and what is not "+
		"in it is not done; "+
		"free space in the daemon's data directory and try again", why)
}

// keep syncs written entries and retries failed writes, until Close.
func (l *Log) keep() {
	tick := time.NewTicker(min(l.cfg.SyncEvery, l.cfg.RetryEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.settle()
		case <-l.stop:
			return
		}
	}
}

// settle is one round of keep.
func (l *Log) settle() {
	l.mu.Lock()
	for len(l.queue) > 0 && !l.writing {
		if l.writeQueue(); l.failed != nil {
			break
		}
	}
	idle := len(l.dirty) == 0
	l.mu.Unlock()
	if idle {
		return
	}
	if err := l.sync(); err != nil {
		return
	}
	if err := l.anchor(false); err != nil {
		l.cfg.Log.Error("anchoring the audit log in the ledger", "error", err)
	}
}

// sync syncs written entries to disk. If that fails, the disk's content is unknown: the entries are cut off and
// written again.
func (l *Log) sync() error {
	l.mu.Lock()
	upTo := l.written.seq
	l.mu.Unlock()
	err := l.out.sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.dirty = slices.DeleteFunc(l.dirty, func(e entry) bool { return e.seq <= upTo })
		return nil
	}
	for l.writing {
		l.turn.Wait()
	}
	l.report(err)
	again := l.dirty
	l.queue, l.dirty = append(again, l.queue...), nil
	for _, e := range again {
		l.queued += int64(len(e.line))
	}
	if len(again) > 0 {
		l.written = head{again[0].seq - 1, again[0].prev}
	}
	return errors.Join(err, l.out.cutUnsynced())
}

// Head returns the number and hash of the last written entry, for records elsewhere.
func (l *Log) Head() (seq int64, hash string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.seq, l.written.hash
}

// Close writes and syncs all entries, and records in the ledger that the log ends here. It fails if some could not be
// written; the daemon's log then has them.
func (l *Log) Close() error {
	close(l.stop)
	l.done.Wait()
	l.mu.Lock()
	l.closed = true
	for len(l.queue) > 0 {
		if l.writing {
			l.turn.Wait()
		} else if l.writeQueue(); l.failed != nil {
			break
		}
	}
	left := l.queue
	l.mu.Unlock()
	for _, e := range left {
		l.cfg.Log.Error("an entry could not be taken into the audit log", "entry", string(e.line))
	}
	err := l.sync()
	if err == nil {
		err = l.anchor(len(left) == 0)
	}
	return errors.Join(err, l.out.f.Close())
}

// output is the current segment.
type output struct {
	dir    string
	number atomic.Int64 // its number once it is full; rotate changes it with mu held
	limit  int64        // bytes

	mu     sync.Mutex // guards f against rotation during a sync
	f      *os.File
	size   int64 // of whole lines
	synced int64 // bytes known to be on disk
}

// write appends a batch whole or not at all. It begins a new segment if the batch does not fit this one.
func (o *output) write(batch []entry, size int) (rotated bool, err error) {
	if o.size > 0 && o.size+int64(size) > o.limit {
		full := o.f
		err := o.rotate()
		if rotated = o.f != full; err != nil {
			return rotated, err
		}
	}
	text := batch[0].line
	if len(batch) > 1 {
		text = make([]byte, 0, size)
		for _, e := range batch {
			text = append(text, e.line...)
		}
	}
	n, err := o.f.Write(text)
	if err != nil && n > 0 {
		err = errors.Join(err, o.f.Truncate(o.size))
	}
	if err == nil {
		o.mu.Lock()
		o.size += int64(n)
		o.mu.Unlock()
	}
	return rotated, err
}

// rotate gives the full segment its number and begins the next.
func (o *output) rotate() error {
	if err := o.sync(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Join(o.dir, current)
	if err := os.Rename(path, filepath.Join(o.dir, segmentName(int(o.number.Load())))); err != nil {
		return err
	}
	f, err := openSegment(path)
	if err != nil { // undo, so that the next write tries again
		return errors.Join(err, os.Rename(filepath.Join(o.dir, segmentName(int(o.number.Load()))), path))
	}
	_ = o.f.Close() // synced
	o.f, o.size, o.synced = f, 0, 0
	o.number.Add(1)
	return durable.Sync(o.dir)
}

func (o *output) sync() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := o.size
	err := syscall.Fdatasync(int(o.f.Fd()))
	if err == nil {
		o.synced = size
	}
	return err
}

// cutUnsynced removes the bytes that a failed sync leaves in doubt.
func (o *output) cutUnsynced() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size = o.synced
	return o.f.Truncate(o.synced)
}

func openSegment(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}
