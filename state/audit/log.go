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
	"syscall"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// A Config is what Open needs. Dir and Ledger must be set.
type Config struct {
	Dir          string // where the segments are; must exist
	Ledger       *ledger.DB
	SegmentBytes int64            // a segment that would grow beyond it is closed, and the next begun; 0 is 16 MiB
	SyncEvery    time.Duration    // the longest that an entry is written and not on disk; 0 is 200 ms
	RetryEvery   time.Duration    // how often what could not be written is tried again; 0 is 500 ms
	QueueBytes   int64            // of entries that wait for that; 0 is 16 MiB
	Log          *slog.Logger     // nil: slog.Default
	Now          func() time.Time // nil: time.Now
}

// maxBatch bounds one write, in bytes: on a disk that is nearly full, small ones get further.
const maxBatch = 256 << 10

// A Log is the log of one daemon. Its methods may be called from several goroutines.
type Log struct {
	cfg  Config
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex // guards what follows
	turn    *sync.Cond // on mu: writing or failed has changed
	chained head       // of the last entry that was given its place
	written head       // of the last one that is in the file
	queue   []entry    // those between the two, but for a batch that is being written
	queued  int64      // bytes of queue
	lost    int64      // entries that queue had no room for, since the last that says so
	writing bool       // somebody writes to out, without mu
	failed  error      // why the last write did not succeed
	dirty   []entry    // in the file, not known to be on disk
	grown   chan struct{}
	closed  bool

	out *output // of whoever set writing; its lock is for syncs beside writes
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

// Open goes on with the log in cfg.Dir, or begins one, and writes an entry that says what it found: how the last
// daemon ended, and whether anything is missing or torn.
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

// Append gives e its place in the chain and returns once it is written, or waits for that in memory because it cannot
// be; Ready then says so. Time, Seq, Prev and Hash are set here.
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

// awaitRoom waits until there is room for an entry, so that none is lost to a crowd while the log can be written: who
// comes in one must not be able to hide what somebody does. Called with mu held.
func (l *Log) awaitRoom() {
	for l.failed == nil && !l.closed && l.queued > 0 && l.queued+maxLine > l.cfg.QueueBytes {
		if l.writing {
			l.turn.Wait()
			continue
		}
		l.writeQueue()
	}
}

// chain puts an entry behind the last. Called with mu held.
func (l *Log) chain(e proto.AuditEntry) {
	e.Seq, e.Prev, e.Time = l.chained.seq+1, l.chained.hash, proto.At(l.cfg.Now())
	line, hash, err := encode(e)
	switch {
	case err != nil:
	case l.closed:
		err = errors.New("the log is closed")
	case l.queued+int64(len(line)) > l.cfg.QueueBytes:
		err = errors.New("there is no room for it in memory")
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

// writeQueue writes the first of what waits. Called with mu held and writing false; it lets go of mu meanwhile.
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
	if rotated { // which synced all before
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

// report notes how a write went, and tells the daemon's log when that changes. Called with mu held.
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

// Ready fails with Unavailable while entries cannot be written. What changes something must not be begun then.
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

// keep syncs what is written, and tries again to write what could not be, until Close.
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

// sync puts what is written on disk. Where that fails nobody knows what the disk has, so it is cut off and written
// again.
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

// Head is the last entry that is written: its number and hash, for noting elsewhere.
func (l *Log) Head() (seq int64, hash string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.seq, l.written.hash
}

// Close writes and syncs what there is, and leaves in the ledger that the log ends here. It fails if something could
// not be written, which the daemon's log then has.
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
	number int   // that it gets once it is full
	limit  int64 // bytes

	mu     sync.Mutex // guards f against rotation during a sync
	f      *os.File
	size   int64 // all whole lines
	synced int64 // of them on disk for sure
}

// write appends a batch whole or not at all, to a new segment where it has no room in this one.
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
	if err := os.Rename(path, filepath.Join(o.dir, segmentName(o.number))); err != nil {
		return err
	}
	f, err := openSegment(path)
	if err != nil { // as it was, so that the next write tries again
		return errors.Join(err, os.Rename(filepath.Join(o.dir, segmentName(o.number)), path))
	}
	_ = o.f.Close() // synced
	o.f, o.size, o.synced = f, 0, 0
	o.number++
	return ledger.SyncPath(o.dir)
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

// cutUnsynced takes back what a failed sync leaves in doubt.
func (o *output) cutUnsynced() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size = o.synced
	return o.f.Truncate(o.synced)
}

func openSegment(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}
