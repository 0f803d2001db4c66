package audit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/state/durable"
	"berth/state/ledger"
)

// The ledger's bucket and key of the anchor.
const (
	bucket    = "audit"
	anchorKey = "head"
)

// An Anchor is the ledger's record of the log.
type Anchor struct {
	Seq    int64     `json:"seq"`
	Hash   string    `json:"hash"`
	Closed bool      `json:"closed"` // the daemon ended in order: the log ends exactly here
	Time   time.Time `json:"time"`
}

// ReadAnchor reads the anchor. There is none before the first daemon.
func ReadAnchor(db *ledger.DB) (a Anchor, ok bool, err error) {
	err = db.View(func(tx *ledger.Tx) error { ok, err = tx.Get(bucket, anchorKey, &a); return err })
	return a, ok, err
}

// anchor records the end of the log that is on disk.
func (l *Log) anchor(closed bool) error {
	l.mu.Lock()
	at := l.written
	if len(l.dirty) > 0 { // written meanwhile; the next round anchors it
		at = head{l.dirty[0].seq - 1, l.dirty[0].prev}
	}
	l.mu.Unlock()
	a := Anchor{Seq: at.seq, Hash: at.hash, Closed: closed, Time: l.cfg.Now()}
	write := l.cfg.Ledger.UpdateAsync // reaches the disk soon, and saves five syncs a second
	if closed {
		write = l.cfg.Ledger.Update
	}
	return write(func(tx *ledger.Tx) error { return tx.Put(bucket, anchorKey, a) })
}

// unclose records on disk that a daemon continues the log. It comes before the first entry: otherwise a power cut
// between the two would make that entry look like one that nobody wrote in order.
func (l *Log) unclose() error {
	a, _, err := ReadAnchor(l.cfg.Ledger)
	if err != nil || !a.Closed {
		return err
	}
	a.Closed = false
	return l.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucket, anchorKey, a) })
}

// A finding is what Open found.
type finding struct {
	outcome string
	text    string
}

// outcomeDamaged is the outcome of a log.open that found entries missing or changed.
const outcomeDamaged = "damaged"

// recover finds the end of the chain, cuts off a torn line, and prepares the log for appending.
func (l *Log) recover() (finding, error) {
	a, anchored, err := ReadAnchor(l.cfg.Ledger)
	if err != nil {
		return finding{}, err
	}
	now, err := take(l.cfg.Dir)
	if err != nil {
		return finding{}, err
	}
	defer now.close()
	end, err := lastEnd(now, a)
	if err != nil {
		return finding{}, err
	}
	if err := l.openCurrent(now.list, end.torn); err != nil {
		return finding{}, err
	}
	l.written = end.head
	if anchored && a.Seq > end.seq { // missing entries keep their numbers, so the gap stays visible
		l.written = head{a.Seq, a.Hash}
	}
	l.chained = l.written
	return end.judge(a, anchored, l.cfg.Ledger.Lost()), nil
}

// openCurrent opens the segment to write to and cuts torn bytes off its end.
func (l *Log) openCurrent(list []segment, torn int64) error {
	number := 1
	if n := len(list); n > 0 {
		number = list[n-1].number
		if list[n-1].name != current { // a crash between the two steps of a rotation
			number++
		}
	}
	f, err := openSegment(filepath.Join(l.cfg.Dir, current))
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err == nil && torn > 0 {
		err = errors.Join(f.Truncate(fi.Size()-torn), f.Sync())
	}
	if err == nil {
		err = durable.Sync(l.cfg.Dir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	size := fi.Size() - torn
	l.out = &output{dir: l.cfg.Dir, limit: l.cfg.SegmentBytes, f: f, size: size, synced: size}
	l.out.number.Store(int64(number))
	return nil
}

// An end describes the end of a log.
type end struct {
	head           // of the last good entry; seq 0 if there is none
	torn     int64 // bytes after the last line feed
	bad      int   // lines of the last segment that are not valid entries
	anchored bool  // the entry with the anchor's number has the anchor's hash
	differs  bool  // the entry exists with another hash
}

// lastEnd reads the last segment that has entries, and the one before if the anchor is there.
func lastEnd(now *snapshot, a Anchor) (end, error) {
	e := end{head: head{0, genesis}}
	for _, seg := range slices.Backward(now.list) {
		var here head
		err := now.scan(seg, 0, func(line []byte) error {
			if line[len(line)-1] != '\n' {
				if seg.name == current {
					e.torn = int64(len(line))
				}
				return nil
			}
			got, err := decode(line)
			if err != nil {
				e.bad++
				return nil
			}
			here = head{got.Seq, got.Hash}
			if got.Seq == a.Seq {
				e.anchored, e.differs = e.anchored || got.Hash == a.Hash, e.differs || got.Hash != a.Hash
			}
			return nil
		})
		if err != nil {
			return e, err
		}
		if e.seq == 0 && here.seq > 0 {
			e.head = here
		}
		if e.seq > 0 && (e.anchored || e.differs || a.Seq == 0 || e.seq < a.Seq) {
			break
		}
	}
	return e, nil
}

// judge describes what was found. lost is what the ledger has lost, perhaps newer anchors.
func (e end) judge(a Anchor, anchored bool, lost string) finding {
	if !anchored && e.seq == 0 && e.torn == 0 && e.bad == 0 {
		return finding{proto.AuditOK, "a new log"}
	}
	var said []string
	f := finding{outcome: proto.AuditOK}
	damage := func(format string, args ...any) {
		f.outcome = outcomeDamaged
		said = append(said, fmt.Sprintf(format, args...))
	}
	if e.bad > 0 {
		damage("%d lines of the last segment are no valid entries", e.bad)
	}
	if lost != "" {
		said = append(said, "the ledger lost records ("+lost+")")
	}
	switch {
	case !anchored && lost == "":
		damage("the ledger does not know this log")
	case e.seq < a.Seq:
		damage("entries %d to %d, which the ledger knows, are missing", e.seq+1, a.Seq)
	case a.Seq > 0 && !e.anchored:
		damage("entry %d is not the one that the ledger knows", a.Seq)
	case lost != "":
		said = append(said, fmt.Sprintf("%d entries after the last one that it still knows are there", e.seq-a.Seq))
	case a.Closed && e.seq > a.Seq:
		damage("entries %d to %d were added after the daemon had ended", a.Seq+1, e.seq)
	case !a.Closed:
		said = append(said, fmt.Sprintf("the last daemon did not end in order; %d entries after the last anchored "+
			"one are there", e.seq-a.Seq))
	default:
		said = append(said, fmt.Sprintf("as it was left, up to entry %d", e.seq))
	}
	if e.torn > 0 {
		said = append(said, fmt.Sprintf("a torn line of %d bytes at the end was cut off", e.torn))
		if a.Closed && lost == "" {
			f.outcome = outcomeDamaged
		}
	}
	f.text = strings.Join(said, "; ")
	return f
}

// Head returns the anchor in the form that Verify takes.
func (a Anchor) Head() Head {
	return Head{Seq: a.Seq, Hash: a.Hash, Exact: a.Closed, Origin: "the ledger"}
}

// PeekAnchor reads the anchor of a data directory whose daemon does not run. See ledger.Peek for errors otherwise.
func PeekAnchor(ledgerFile string) (a Anchor, ok bool, err error) {
	err = ledger.Peek(ledgerFile, func(tx *ledger.Tx) (err error) {
		ok, err = tx.Get(bucket, anchorKey, &a)
		return err
	})
	return a, ok, err
}
